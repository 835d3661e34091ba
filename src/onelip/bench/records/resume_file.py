"""The state that a stopped run continues from: one file, replaced in one step, with a checksum in front.

    b"onelip resume 2\n"   32 bytes SHA-256 of the rest   what `torch.save` writes

It is read by `torch.load(weights_only=True)`, which builds tensors and plain values and nothing else. The checksum
tells damage on the disk from a good file before anything is decoded.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.atomic_files import read_regular, write_atomically
from onelip.errors import InvalidInputError, one_line

CHECKPOINT_FILE = "checkpoint.bin"
_MAGIC = b"onelip resume 2\n"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Checkpoint:
    """What `save_checkpoint` stored: the state tree with its tensors on the CPU, and the plain values."""

    tensors: dict[str, Any]
    meta: dict[str, Any]


def save_checkpoint(folder: Path, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Replace the checkpoint of a run, all or nothing.

    Args:
        folder: the run's folder.
        tensors: a tree of dicts, lists and tuples with tensors and plain values at its leaves, such as
            `{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}`.
        meta: plain values: step, seconds used, ...
    """
    import torch

    buffer = io.BytesIO()
    torch.save({"tensors": dict(tensors), "meta": dict(meta)}, buffer)
    if unsafe := torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(buffer.getvalue())):
        raise InvalidInputError(f"a checkpoint holds tensors and plain values, not {', '.join(unsafe)}")
    content = buffer.getvalue()
    write_atomically(folder / CHECKPOINT_FILE, _MAGIC + hashlib.sha256(content).digest() + content)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint of a run, None if it has none; `InvalidInputError` if it is damaged or foreign."""
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return None
    import torch

    try:
        raw = read_regular(path)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from error
    digest, content = raw[len(_MAGIC) :][:_DIGEST_BYTES], raw[len(_MAGIC) + _DIGEST_BYTES :]
    if not raw.startswith(_MAGIC):
        raise InvalidInputError(f"{path}: not a checkpoint of this version of onelip; delete it to start afresh")
    if hashlib.sha256(content).digest() != digest:
        raise InvalidInputError(f"{path}: damaged, the checksum is wrong; delete it to start the run afresh")
    try:
        stored = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return Checkpoint(dict(stored["tensors"]), dict(stored["meta"]))
    except Exception as error:  # the checksum is right: somebody made a file that torch refuses, in any way at all
        raise InvalidInputError(f"{path}: not a checkpoint of onelip ({one_line(error):.200})") from error
