"""Trained networks as one safetensors file: the parameters, and the configuration in its header.

    save_model(model, "aol.safetensors")
    model = load_model("aol.safetensors")       # nothing else is needed to rebuild it

Loading reads numbers and JSON only. Nothing is unpickled, so that a file from elsewhere cannot run code.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from onelip.atomic_files import write_atomically
from onelip.errors import InvalidInputError
from onelip.models import ConvNet
from onelip.models.config import ConvNetConfig

_FORMAT = "onelip.ConvNet"
_VERSION = "2"  # 1: networks that kept other channels at the end of a block


def save_model(model: ConvNet, path: str | os.PathLike[str]) -> None:
    """Write the network to `path`, all or nothing: a crash leaves a file that was there before as it was."""
    if not isinstance(model, ConvNet):
        raise InvalidInputError(f"only a ConvNet can be saved with its configuration, got {type(model).__name__}")
    state = model.state_dict()
    expected = ConvNet.from_config(model.config, device="meta").state_dict()
    if _shapes(state) != _shapes(expected):
        raise InvalidInputError(
            "the parameters are not those of the model's config: save the network before fusing or changing it"
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    header = {"format": _FORMAT, "format_version": _VERSION, "config": json.dumps(asdict(model.config))}
    write_atomically(Path(path), safetensors.torch.save(tensors, metadata=header))


def load_model(path: str | os.PathLike[str]) -> ConvNet:
    """The network that `save_model` wrote, on the CPU, in training mode, with the dtype it was saved in."""
    header, tensors = _read(Path(path))
    config = _config_from(header, Path(path))
    # Built without memory and without drawing random numbers: every value comes from the file.
    model = ConvNet.from_config(config, device="meta")
    expected = model.state_dict()
    if _shapes(tensors) != _shapes(expected):
        raise InvalidInputError(f"{path}: the tensors are not those of the network in its header ({config})")
    model.load_state_dict(tensors, assign=True)
    return model


def _shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            if header.get("format") != _FORMAT:
                raise InvalidInputError(f"{path}: a safetensors file, but not a network saved by onelip")
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except safetensors.SafetensorError as error:
        raise InvalidInputError(f"{path}: damaged or not a safetensors file ({error})") from error


def _config_from(header: dict[str, str], path: Path) -> ConvNetConfig:
    version = header.get("format_version")
    if version != _VERSION:
        raise InvalidInputError(
            f"{path}: has format version {version}, this onelip reads {_VERSION}, whose networks keep the maxima and "
            "minima of half of the pairs of channels; train the network again"
        )
    try:
        values = json.loads(header.get("config", ""))
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"{path}: damaged, the configuration in its header is not JSON") from error
    names = {field.name for field in fields(ConvNetConfig)}
    if not isinstance(values, dict) or set(values) != names:
        raise InvalidInputError(f"{path}: the configuration in its header needs exactly {', '.join(sorted(names))}")
    try:
        return ConvNetConfig(**values)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
