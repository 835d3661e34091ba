"""Checkpoints: one safetensors file per run that holds the tensors and, in its header, everything else.

Tensors and JSON are one file so that one rename replaces both: there is no moment at which new weights lie
beside an old step counter. A checksum over both tells damage on the disk from a good file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onelip.atomic_files import write_atomically
from onelip.bench.runs.canonical import dump_json, parse_json
from onelip.bench.runs.state_tree import flatten_state, restore_state
from onelip.errors import InvalidInputError

if TYPE_CHECKING:
    import torch

CHECKPOINT_FILE = "checkpoint.safetensors"
_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """What `save_checkpoint` stored: the state tree with its tensors on the CPU, and the plain values."""

    tensors: dict[str, Any]
    meta: dict[str, Any]


def save_checkpoint(folder: Path, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Replace the checkpoint of a run, all or nothing.

    Args:
        folder: the run's folder.
        tensors: a tree with tensors at its leaves, such as
            `{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}`;
            scalars in it come back exactly, with their type.
        meta: plain values (step, seconds used, ...), as in a record.
    """
    import safetensors.torch

    flat, skeleton = flatten_state(dict(tensors))
    content = {"schema_version": _SCHEMA_VERSION, "state": skeleton, "meta": dict(meta)}
    text = dump_json(content, indent=None, where="checkpoint")
    header = {"onelip": text, "sha256": _checksum(flat, text)}
    write_atomically(folder / CHECKPOINT_FILE, safetensors.torch.save(flat, metadata=header))


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint of a run, None if it has none; `InvalidInputError` if it is damaged or foreign."""
    import safetensors.torch

    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return None
    try:
        # Read once: safe_open opens a file twice, and a running job may replace it in between.
        raw = path.read_bytes()
        flat = safetensors.torch.load(raw)
        header = _metadata(raw)
    except (OSError, safetensors.SafetensorError) as error:
        raise InvalidInputError(f"{path}: damaged, not a readable safetensors file ({error})") from error
    if "onelip" not in header:
        raise InvalidInputError(f"{path}: not a checkpoint of onelip")
    if header.get("sha256") != _checksum(flat, header["onelip"]):
        raise InvalidInputError(f"{path}: damaged, the checksum is wrong; delete it to start the run afresh")
    content = parse_json(header["onelip"])
    if content["schema_version"] != _SCHEMA_VERSION:
        raise InvalidInputError(
            f"{path}: has schema version {content['schema_version']}, this onelip reads {_SCHEMA_VERSION}"
        )
    return Checkpoint(restore_state(content["state"], flat), content["meta"])


def _metadata(raw: bytes) -> dict[str, str]:
    """The free-form part of a safetensors header: eight bytes of length, little-endian, then JSON."""
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]).get("__metadata__", {})


def _checksum(tensors: dict[str, torch.Tensor], text: str) -> str:
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
