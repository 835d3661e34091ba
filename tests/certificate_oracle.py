"""Ground truth for certificate files: their claims, decided in float64 from dense matrices, without their witnesses."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional as F

Parts = tuple[dict[str, Any], dict[str, Tensor]]


def opened(content: bytes) -> Parts:
    """Certificate and tensors of a file."""
    tensors = load(content)
    return json.loads(tensors.pop("certificate").numpy().tobytes()), tensors


def sealed(certificate: dict[str, Any] | str, tensors: dict[str, Tensor]) -> bytes:
    """A file with right hashes, whatever it says."""
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    if isinstance(certificate, dict):
        hashes = {name: hashlib.sha256(t.numpy().tobytes()).hexdigest() for name, t in tensors.items()}
        certificate = json.dumps(certificate | {"tensors": hashes})
    text = certificate.encode()
    said = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return save({"certificate": said, **tensors}, {"certificate_sha256": hashlib.sha256(text).hexdigest()})


def linear_part(entry: dict[str, Any], tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    """A x for vectors (batch, entries)."""
    weight = tensors[entry["weight"]].double()
    if entry["op"] == "linear":
        return x @ weight.T
    pads = entry.get("padding", [side // 2 for side in weight.shape[2:]])
    image = x.reshape(len(x), -1, *entry["image"][1:])
    mode = "circular" if entry["mode"] == "circular" else "constant"
    padded = F.pad(image, (pads[1], pads[1], pads[0], pads[0]), mode=mode)
    return F.conv2d(padded, weight, stride=entry.get("stride", [1, 1])).flatten(1)


def with_bias(entry: dict[str, Any], tensors: dict[str, Tensor], y: Tensor) -> Tensor:
    """The bias of each output channel added."""
    if "bias" not in entry:
        return y
    bias = tensors[entry["bias"]].double()
    return (y.reshape(len(y), len(bias), -1) + bias[:, None]).flatten(1)


def apply(entry: dict[str, Any], tensors: dict[str, Tensor], x: Tensor) -> tuple[Tensor, float]:
    """Outputs for vectors (batch, entries), and the smallest constant that the format can claim."""
    if "rest" in entry:
        rest, inner = entry["rest"], {key: value for key, value in entry.items() if key != "rest"}
        y, norm = apply(inner, tensors, x[:, rest:])
        return torch.cat([x[:, :rest], y], 1), max(1.0, norm) if rest else norm
    if entry["op"] == "sandwich":
        area = entry["image"][1] * entry["image"][2]
        entries = tensors[entry["weight"]].shape[1] * area
        matrix = linear_part(entry, tensors, torch.eye(entries, dtype=torch.float64)).T
        outputs = entry["outputs"] * area
        hidden = with_bias(entry, tensors, x @ matrix[:, outputs:].T).relu()
        return hidden @ matrix[:, :outputs], float(torch.linalg.matrix_norm(matrix, 2)) ** 2 / 2
    if entry["op"] in ("linear", "convolution", "residual"):
        matrix = linear_part(entry, tensors, torch.eye(x.shape[1], dtype=torch.float64)).T
        norm = float(torch.linalg.matrix_norm(matrix, 2))
        y = with_bias(entry, tensors, x @ matrix.T)
        if entry["op"] == "residual":
            return x - y.relu() @ matrix, max(1.0, norm**2 - 1)
        return y, norm
    if entry["op"] == "gather":
        index = tensors[entry["index"]].long()
        return F.pad(x, (0, 1))[:, index], math.sqrt(int(torch.bincount(index[index >= 0], minlength=1).max()))
    if entry["op"] == "sort":
        return x.reshape(len(x), entry["group"], -1).sort(dim=1, descending=True).values.flatten(1), 1.0
    return (x.relu() if entry["op"] == "relu" else x.abs()), 1.0


def falsehood(content: bytes) -> str | None:
    """A claim of the file that is false, beyond what float64 leaves open; None if all of them hold."""
    certificate, tensors = opened(content)
    x = tensors["inputs"].double()
    norms: list[float] = []
    for number, entry in enumerate(certificate["operations"]):
        x, norm = apply(entry, tensors, x)
        norms.append(norm)
        if not float(tensors["bounds"][number]) >= norm * (1 - 1e-9) - 1e-9:
            return f"operation {number} has the norm {norm}, not {float(tensors['bounds'][number])}"
    off = (x - tensors["scores"].double()).abs().amax(1)
    if not bool((off <= tensors["errors"].double() + 1e-9).all()):
        return "scores"
    chosen = tensors["predictions"][:, None]
    gaps = (x.gather(1, chosen) - x).scatter(1, chosen, torch.inf)
    if not bool((tensors["margins"].double() <= gaps.amin(1) + 1e-9).all()):
        return "margins"
    last = [entry["op"] if not entry.get("rest") else "" for entry in certificate["operations"]]
    while last and last[-1] == "gather":
        last.pop()
    before = len(last) - 1 if last and last[-1] == "linear" else len(norms)
    selected = torch.eye(x.shape[1], dtype=torch.float64)
    for entry in reversed(certificate["operations"][before:]):
        if entry["op"] == "gather":
            index = tensors[entry["index"]].long()
            width = 1 + int(index.max())
            selected = selected @ torch.eye(width + 1, dtype=torch.float64)[index][:, :width]
        else:
            weight = tensors[entry["weight"]].double()
            selected = selected @ weight[: selected.shape[1]]
    distances = torch.stack([(row - selected).norm(dim=1) for row in selected])[tensors["predictions"]]
    reach = (
        tensors["radii"].double()[:, None] * float(tensors["input_scale"][0]) * distances * math.prod(norms[:before])
    )
    if not bool(((reach <= gaps + 1e-9) | (tensors["radii"][:, None] == 0)).all()):
        return "radii"
    return None
