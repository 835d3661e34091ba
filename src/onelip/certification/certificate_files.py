"""Certificates as files that `onelip-check`, and checkers of others, check without torch and without onelip.

The file lists the network as plain operations with the numbers of its fused weights, a bound and a witness for each,
and for every input its scores, margin and radius. docs/certificate_format.md defines it. A radius in it may be smaller
than that of the certificate by about a part in ten thousand, because the witnesses are simple, and is never larger.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from onelip.certification.heads import SQRT2
from onelip.certification.listing import plain_operations
from onelip.certification.plain_operations import Operation, narrowest
from onelip.certification.witnesses import UNIT


def proven_file(
    model: nn.Module, inputs: Tensor, predictions: Tensor, radii: Tensor, input_scale: float
) -> tuple[bytes, Tensor]:
    """Content of the file about these inputs (batch, ...), with no larger radii, and the scores in it.

    The caller compares the scores with the model's: a model that is listed wrongly has other ones.
    """
    steps = plain_operations(model, tuple(inputs.shape[1:]))
    flat = narrowest(inputs.flatten(1))
    parts = [_scores(steps, part.double()) for part in flat.split(256)]
    scores, error = torch.cat([part for part, _ in parts]), max(error for _, error in parts)
    claims = _claims(steps, scores, error, predictions, input_scale)
    claims["radii"] = torch.minimum(claims["radii"], radii)
    tensors = {"inputs": flat, **claims}
    for step in steps:
        tensors |= step.tensors
    return file_content([step.entry for step in steps], tensors), scores


@torch.no_grad()
def _scores(steps: Sequence[Operation], x: Tensor) -> tuple[Tensor, float]:
    """Scores in float64, and a bound of their distance from those of a checker and from the exact ones, in norm."""
    units = math.sqrt(x.shape[1]) + 1  # inputs are rounded to multiples of the unit
    for step in steps:
        x, own = step.run(x)
        units = units * step.bound + own + 1
    return x, units * UNIT * 1.01 + 1e-11 * (1 + float(x.abs().amax()))


def _claims(
    steps: Sequence[Operation], scores: Tensor, error: float, chosen: Tensor, input_scale: float
) -> dict[str, Tensor]:
    """What is said about each input: everything is worth twice the error less than float64 says."""
    own = scores.gather(1, chosen[:, None])
    slack = (own - scores - 2.001 * error).scatter(1, chosen[:, None], torch.inf)
    distances, before = _distances(steps, chosen, scores.shape[1])
    bounds = [step.bound for step in steps]
    constant = math.prod(bounds[:before]) * input_scale * (1 + 1e-9)
    radii = (slack / (distances * constant)).amin(1).clamp(min=0)
    return {
        "bounds": torch.tensor(bounds, dtype=torch.float64),
        "input_scale": torch.tensor([input_scale], dtype=torch.float64),
        "scores": scores,
        "errors": torch.full((len(scores),), error, dtype=torch.float64),
        "predictions": chosen,
        "margins": slack.amin(1),
        "radii": radii,
    }


def _distances(steps: Sequence[Operation], chosen: Tensor, classes: int) -> tuple[Tensor, int]:
    """Constants of y_p - y_j behind the first operations, and how many these are: all, where scores have no rows."""
    index = torch.arange(classes)
    for before, step in reversed(list(enumerate(steps))):
        if step.entry["op"] == "gather" and "rest" not in step.entry:
            moved = step.tensors[step.entry["index"]].long()
            index = torch.where(index < 0, index, moved[index])
            continue
        if step.rows is None:
            break
        rows = torch.nn.functional.pad(step.rows, (0, 0, 0, 1))[index]
        distances = torch.stack([torch.linalg.vector_norm(rows[one] - rows, dim=1) for one in range(classes)])
        return distances[chosen] * (1 + 1e-9) + 1e-9, before
    return torch.full((len(chosen), classes), SQRT2, dtype=torch.float64), len(steps)


def file_content(operations: Sequence[dict[str, Any]], tensors: dict[str, Tensor]) -> bytes:
    """Safetensors with the certificate as a tensor of JSON, and the SHA-256 of everything."""
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    hashes = {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}
    text = json.dumps(
        {"format": "onelip certificate", "version": 1, "operations": list(operations), "tensors": hashes}
    ).encode()
    metadata = {"certificate_sha256": hashlib.sha256(text).hexdigest()}
    certificate = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return safetensors.torch.save({"certificate": certificate, **tensors}, metadata)
