"""Trained networks as one safetensors file: the parameters, and in its header what rebuilds the network.

    save_model(model, "aol.safetensors")
    model = load_model("aol.safetensors")       # a ConvNet: nothing else is needed to rebuild it

    save_model(model, "mine.safetensors", factory="my_package.nets:make_net", arguments={"width": 64})
    model = load_model("mine.safetensors", allow=("my_package",))      # any model; runs my_package's code

Loading reads numbers and JSON only. Nothing is unpickled, and no module that a file names is imported unless the caller
allows it, so that a file from elsewhere cannot run code. Equal networks give equal files, byte by byte: the header has
one entry, because safetensors writes several in random order.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints, overload

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from onelip import pretrained
from onelip.atomic_files import read_regular, write_atomically
from onelip.errors import InvalidInputError, one_line
from onelip.factories import Factory, allowed_factory, build, factory_name, find_factory
from onelip.models import NETWORKS, ConvNet, NamedNetwork
from onelip.models.config import ConvNetConfig

_VERSION = 3
_FORMATS = ("ConvNet", "network", "factory")
_LARGEST = 2**20
"""No length in a configuration is nearly so large; building a network from one that is would take for ever."""


def save_model(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    factory: Factory | str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> str:
    """Write the network to `path`, all or nothing, and return the SHA-256 of the file.

    A crash leaves an earlier file as it was. Weights that are not finite are refused, and so is a model whose
    parameters differ from a new one's, because it could not be loaded.

    Args:
        model: a network of `onelip.models`, or with `factory` any model.
        path: the file.
        factory: function that builds such a model, or its name as "package.module:function".
        arguments: keyword arguments for the factory that JSON can hold; tuples arrive as lists.

    Examples:
        >>> import onelip
        >>> model = onelip.ConvNet("aol", None, num_classes=10, input_size=8, width=4)
        >>> digest = onelip.save_model(model, "aol.safetensors")
        >>> len(digest)
        64
    """
    header: dict[str, Any]
    name = next((name for name, network in NETWORKS.items() if type(model) is network), None)
    if factory is None and isinstance(model, ConvNet):
        header = {"format": "ConvNet", "version": _VERSION, "config": asdict(model.config)}
        expected = _shapes(ConvNet.from_config(model.config, device="meta").state_dict())
        what = "the model's config"
    elif factory is None and isinstance(model, NamedNetwork) and name is not None:
        header = {"format": "network", "version": _VERSION, "network": name, "arguments": _plain(model.arguments)}
        expected = _shapes(_named_network(header).state_dict())
        what = "the model's arguments"
    elif factory is None:
        raise InvalidInputError(
            f"a {type(model).__name__} needs the function that rebuilds it: save_model(model, path, "
            'factory="package.module:function", arguments={...}); only networks of onelip.models are saved without one'
        )
    else:
        plain = _plain(arguments or {})
        header = {"format": "factory", "version": _VERSION, "factory": factory_name(factory), "arguments": plain}
        rebuilt = build(find_factory(factory) if isinstance(factory, str) else factory, plain)
        expected, what = _shapes(_tensors(rebuilt)), f"a new model of {header['factory']}"
    state = _tensors(model)
    if _shapes(state) != expected:
        raise InvalidInputError(
            f"the parameters are not those of {what}: save the network before fusing or changing it"
            + _difference(_shapes(state), expected)
        )
    _refuse_non_finite(state, "the network")
    # Tied weights share memory, which the format does not have: each name gets the values of its own.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    content = safetensors.torch.save(tensors, metadata={"onelip": json.dumps(header)})
    write_atomically(Path(path), content)
    return hashlib.sha256(content).hexdigest()


@overload
def load_model(path: str | os.PathLike[str], *, sha256: str | None = None) -> ConvNet | NamedNetwork: ...


@overload
def load_model(
    path: str | os.PathLike[str],
    *,
    sha256: str | None = None,
    factory: Factory | None = None,
    allow: str | Sequence[str] = (),
) -> nn.Module: ...


def load_model(
    path: str | os.PathLike[str],
    *,
    sha256: str | None = None,
    factory: Factory | None = None,
    allow: str | Sequence[str] = (),
) -> nn.Module:
    """The network that `save_model` wrote, on the CPU, in training mode, with the dtype it was saved in.

    Args:
        path: the file, or the name of a network that comes with onelip (`onelip.pretrained.names()`).
        sha256: what `save_model` returned; a file that has been changed or damaged since is refused.
        factory: function that builds the model, for a file that was saved with one; the name in it is not imported.
        allow: packages, modules or full names ("package.module:function") that a file may name as its factory. What is
            allowed is imported and called with the arguments in the file, so allow only code that you trust.

    Examples:
        >>> import onelip
        >>> onelip.load_model("cifar10-fast-2m").input_shape
        (3, 32, 32)
    """
    if isinstance(path, str) and path in pretrained.names():
        content, sha256 = pretrained.weights(path), sha256 or pretrained.card(path)["sha256"]
    elif isinstance(path, str | os.PathLike):
        content = _read(Path(path))
    else:
        raise InvalidInputError(f"load_model takes the path of a file, got a {type(path).__name__}")
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise InvalidInputError(f"{path}: damaged or replaced, its SHA-256 is not the recorded one")
    try:
        described = _described(content)
        tensors = safetensors.torch.load(content)
        _refuse_non_finite(tensors, "the file")
        if described["format"] == "ConvNet":
            config = _config(described)
            return _filled(ConvNet.from_config(config, device="meta"), tensors, str(config))
        if described["format"] == "network":
            return _filled(_named_network(described), tensors, str(described["arguments"]))
        return _load_built(described, tensors, factory, allow)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    except (safetensors.SafetensorError, RuntimeError, OverflowError, MemoryError, TypeError) as error:
        raise InvalidInputError(f"{path}: damaged or not a safetensors file ({one_line(error):.200})") from error


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)  # once: what is checked is what is used
    except OSError as error:
        allowed = f"a file that save_model wrote, or one of onelip's own networks: {', '.join(pretrained.names())}"
        raise InvalidInputError(f"{path}: cannot be read ({error.strerror or error}); allowed: {allowed}") from error


def _named_network(described: dict[str, Any]) -> NamedNetwork:
    """One of onelip's own networks, built without memory and without drawing random numbers."""
    network, arguments = NETWORKS.get(str(described.get("network"))), described.get("arguments")
    if network is None or not isinstance(arguments, dict):
        raise InvalidInputError(f"its header needs arguments and the name of a network, one of {', '.join(NETWORKS)}")
    unknown = set(arguments) & {"device", "dtype"}
    if unknown:
        raise InvalidInputError(f"arguments in its header may not have {', '.join(sorted(unknown))}")
    return network(**{**network.absent_arguments, **arguments}, device="meta")


def _filled(model: nn.Module, tensors: dict[str, Tensor], what: str) -> nn.Module:
    """The network with every value from the file."""
    if _shapes(tensors) != _shapes(model.state_dict()):
        raise InvalidInputError(f"the tensors are not those of the network in its header ({what:.300})")
    model.load_state_dict(tensors, assign=True)
    return model


def _load_built(
    described: dict[str, Any], tensors: dict[str, Tensor], factory: Factory | None, allow: str | Sequence[str]
) -> nn.Module:
    name, arguments = described.get("factory"), described.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise InvalidInputError("its header needs the name of a factory and an object of arguments")
    model = build(allowed_factory(name, allow) if factory is None else factory, arguments)
    expected = _shapes(_tensors(model))
    if _shapes(tensors) != expected:
        raise InvalidInputError(
            f"the tensors are not those of a model of {name}" + _difference(_shapes(tensors), expected)
        )
    types = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(types) == 1:
        model.to(types.pop())
    model.load_state_dict(tensors)  # copies, so that tied weights stay tied
    return model.cpu().train()


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InvalidInputError(f"{name} in the state of the model is a {type(value).__name__}, not a tensor")
    return state


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return json.loads(json.dumps(dict(arguments), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"arguments must be what JSON can hold ({one_line(error):.200})") from error


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _difference(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> str:
    """The first name that differs, for a message."""
    name = next(name for name in (*found, *expected) if found.get(name) != expected.get(name))
    return f" ({name:.100}: {found.get(name, 'missing')}, expected {expected.get(name, 'nothing')})"


def _refuse_non_finite(state: Mapping[str, Tensor], what: str) -> None:
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InvalidInputError(f"{what} has weights that are not finite: {name}")


def _described(content: bytes) -> dict[str, Any]:
    """What a safetensors header, which is eight bytes of length and JSON, says of the network."""
    length = int.from_bytes(content[:8], "little")
    header = _object(content[8 : 8 + length].decode("utf-8", "replace"), "the header")
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("onelip"), str):
        raise InvalidInputError("a safetensors file, but not a network saved by this version of onelip")
    described = _object(metadata["onelip"], "onelip in the header")
    if described.get("format") not in _FORMATS or described.get("version") != _VERSION:
        raise InvalidInputError(
            f"a {described.get('format')!r:.40} of version {described.get('version')!r:.40}, "
            f"this onelip reads {', '.join(_FORMATS)} of version {_VERSION}"
        )
    return described


def _config(described: dict[str, Any]) -> ConvNetConfig:
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
