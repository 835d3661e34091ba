"""Trained networks as one safetensors file: the parameters, and the configuration in its header.

    save_model(model, "aol.safetensors")
    model = load_model("aol.safetensors")       # nothing else is needed to rebuild it

Loading reads numbers and JSON only. Nothing is unpickled, so that a file from elsewhere cannot run code. Equal
networks give equal files, byte by byte: the header has one entry, because safetensors writes several in random order.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from onelip.atomic_files import write_atomically
from onelip.errors import InvalidInputError, one_line
from onelip.models import ConvNet
from onelip.models.config import ConvNetConfig

_VERSION = 3
_LARGEST = 2**20
"""No length in a configuration is nearly so large; building a network from one that is would take for ever."""


def save_model(model: ConvNet, path: str | os.PathLike[str]) -> str:
    """Write the network to `path`, all or nothing, and return the SHA-256 of the file.

    A crash leaves a file that was there before as it was. Weights that are not finite are refused.
    """
    if not isinstance(model, ConvNet):
        raise InvalidInputError(f"only a ConvNet can be saved with its configuration, got {type(model).__name__}")
    state = model.state_dict()
    if _shapes(state) != _shapes(ConvNet.from_config(model.config, device="meta").state_dict()):
        raise InvalidInputError(
            "the parameters are not those of the model's config: save the network before fusing or changing it"
        )
    _refuse_non_finite(state, "the network")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    header = {"format": "ConvNet", "version": _VERSION, "config": asdict(model.config)}
    content = safetensors.torch.save(tensors, metadata={"onelip": json.dumps(header)})
    write_atomically(Path(path), content)
    return hashlib.sha256(content).hexdigest()


def load_model(path: str | os.PathLike[str], *, sha256: str | None = None) -> ConvNet:
    """The network that `save_model` wrote, on the CPU, in training mode, with the dtype it was saved in.

    Args:
        path: the file.
        sha256: what `save_model` returned; a file that has been changed or damaged since is refused.
    """
    path = Path(path)
    try:
        content = path.read_bytes()  # once: what is checked is what is used
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise InvalidInputError(f"{path}: damaged or replaced, its SHA-256 is not the recorded one")
    try:
        config = _config(content)
        tensors = safetensors.torch.load(content)
        # Built without memory and without drawing random numbers: every value comes from the file.
        model = ConvNet.from_config(config, device="meta")
        if _shapes(tensors) != _shapes(model.state_dict()):
            raise InvalidInputError(f"the tensors are not those of the network in its header ({config})")
        _refuse_non_finite(tensors, "the file")
        model.load_state_dict(tensors, assign=True)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    except (safetensors.SafetensorError, RuntimeError, OverflowError, MemoryError, TypeError) as error:
        raise InvalidInputError(f"{path}: damaged or not a safetensors file ({one_line(error):.200})") from error
    return model


def _shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _refuse_non_finite(state: dict[str, Tensor], what: str) -> None:
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InvalidInputError(f"{what} has weights that are not finite: {name}")


def _config(content: bytes) -> ConvNetConfig:
    """The configuration in a safetensors header, which is eight bytes of length and JSON."""
    length = int.from_bytes(content[:8], "little")
    header = _object(content[8 : 8 + length].decode("utf-8", "replace"), "the header")
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("onelip"), str):
        raise InvalidInputError("a safetensors file, but not a network saved by this version of onelip")
    described = _object(metadata["onelip"], "onelip in the header")
    if (described.get("format"), described.get("version")) != ("ConvNet", _VERSION):
        raise InvalidInputError(
            f"a {described.get('format')!r:.40} of version {described.get('version')!r:.40}, "
            f"this onelip reads 'ConvNet' of version {_VERSION}"
        )
    values, names = described.get("config"), {field.name for field in fields(ConvNetConfig)}
    if not isinstance(values, dict) or set(values) | {"input_width"} != names:  # older files have square images
        raise InvalidInputError(f"config in its header needs exactly {', '.join(sorted(names))}")
    types = get_type_hints(ConvNetConfig)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, types[name]):
            raise InvalidInputError(f"config.{name} in its header is {value!s:.40}, not {types[name]}")
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise InvalidInputError(f"config.{name} in its header is beyond {_LARGEST:,}")
    return ConvNetConfig(**values)


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"damaged or not a safetensors file: {what} is not JSON") from error
    if not isinstance(tree, dict):
        raise InvalidInputError(f"damaged or not a safetensors file: {what} is not a JSON object")
    return tree
