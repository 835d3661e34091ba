"""Layers by the key of their method."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from torch import nn

from onelip.errors import InvalidInputError, did_you_mean
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.linear import LipschitzLinear
from onelip.layers.parametrization import constrain
from onelip.layers.registry import MethodInfo, find_methods, published_settings
from onelip.layers.variants import LipschitzConv1d, LipschitzConvTranspose2d, of_signals, transposed
from onelip.layers.volumes import LipschitzConv3d, of_volumes

Variant = Literal["own", "published"]
AnyModule = TypeVar("AnyModule", bound=nn.Module)

_METHODS = find_methods()
_OF_VOLUMES = {key: of_volumes(method.conv) for key, method in _METHODS.items() if method.conv.traits.holds_for_volumes}
_LAYERS = [(m.conv, m.linear_layer, transposed(m.conv), of_signals(m.conv)) for m in _METHODS.values()]
CLASSES = {layer.__name__: layer for layers in (*_LAYERS, tuple(_OF_VOLUMES.values())) for layer in layers}
"""All layers of methods by their names."""


def list_methods() -> list[MethodInfo]:
    """All methods in alphabetical order of their keys.

    Examples:
        >>> import onelip
        >>> [method.key for method in onelip.list_methods()]
        ['aoc', 'aol', 'bcop', ...]
    """
    return list(_METHODS.values())


def get_method(key: str) -> MethodInfo:
    """The method with this key, in any case.

    Examples:
        >>> import onelip
        >>> method = onelip.get_method("aol")
        >>> method.title, method.year, method.guarantee
        ('AOL', 2022, 'bounded')
    """
    method = _METHODS.get(key.lower()) if isinstance(key, str) else None
    if method is None:
        close = did_you_mean(str(key), _METHODS)
        raise InvalidInputError(f"there is no method {key!r}, use one of {', '.join(_METHODS)}{close}")
    return method


def create_conv(method: str, *args: Any, variant: Variant = "own", **kwargs: Any) -> LipschitzConv2d:
    """`<Method>Conv2d(*args, **kwargs)` by the method's key.

    variant="published" is the layer of the public code where no certificate can be made of it: eco and sandwich.

    Examples:
        >>> import torch, onelip
        >>> onelip.create_conv("aol", 3, 8, kernel_size=3, stride=2)(torch.rand(1, 3, 8, 8)).shape
        torch.Size([1, 8, 4, 4])
    """
    return _classes(method, variant)[0](*args, **kwargs)


def create_conv_transpose(method: str, *args: Any, **kwargs: Any) -> LipschitzConvTranspose2d:
    """`<Method>ConvTranspose2d(*args, **kwargs)` by the method's key.

    Examples:
        >>> import torch
        >>> from onelip.layers import create_conv_transpose
        >>> create_conv_transpose("aol", 8, 4, kernel_size=4, stride=2, padding=1)(torch.rand(1, 8, 8, 8)).shape
        torch.Size([1, 4, 16, 16])
    """
    return transposed(get_method(method).conv)(*args, **kwargs)


def create_conv1d(method: str, *args: Any, **kwargs: Any) -> LipschitzConv1d:
    """`<Method>Conv1d(*args, **kwargs)` by the method's key.

    Examples:
        >>> import torch
        >>> from onelip.layers import create_conv1d
        >>> create_conv1d("lot", 1, 8, kernel_size=5, stride=4)(torch.rand(2, 1, 64)).shape
        torch.Size([2, 8, 16])
    """
    return of_signals(get_method(method).conv)(*args, **kwargs)


def create_conv3d(method: str, *args: Any, **kwargs: Any) -> LipschitzConv3d:
    """`<Method>Conv3d(*args, **kwargs)` by the method's key, for the methods that have one.

    Examples:
        >>> import torch
        >>> from onelip.layers import create_conv3d
        >>> create_conv3d("aol", 1, 4, kernel_size=3, padding_mode="zeros")(torch.rand(1, 1, 6, 6, 6)).shape
        torch.Size([1, 4, 6, 6, 6])
    """
    key = get_method(method).key
    if key not in _OF_VOLUMES:
        raise InvalidInputError(f"{key} has no convolution of volumes; use one of {', '.join(_OF_VOLUMES)}")
    return _OF_VOLUMES[key](*args, **kwargs)


def create_linear(method: str, *args: Any, variant: Variant = "own", **kwargs: Any) -> LipschitzLinear:
    """`<Method>Linear(*args, **kwargs)` by the method's key; `variant` as for `create_conv`.

    Examples:
        >>> import torch, onelip
        >>> onelip.create_linear("cayley", 8, 3)(torch.rand(2, 8)).shape
        torch.Size([2, 3])
    """
    return _classes(method, variant)[1](*args, **kwargs)


def parametrize(module: AnyModule, method: str = "bjorck", name: str = "weight") -> AnyModule:
    """Constrain a weight of a module of torch's in place, by the transformation of a method; returns the module.

    Args:
        module: a linear layer, a convolution of signals or images, transposed or not, or any module with a matrix.
        method: for matrices aol, bcop, bjorck, cholesky, lot, oni or spectral; for kernels aol, bjorck or oni.
        name: the parameter.

    `torch.nn.utils.parametrize.remove_parametrizations(module, name)` leaves the constrained weight in its place.

    Examples:
        >>> import torch, onelip
        >>> from onelip.layers import parametrize
        >>> head = parametrize(torch.nn.Linear(8, 3), "bjorck")
        >>> onelip.lipschitz_bound(head, (8,)) <= 1 + 1e-5
        True
    """
    constrain(module, get_method(method), name)
    return module


def _classes(method: str, variant: str) -> tuple[type[LipschitzConv2d], type[LipschitzLinear]]:
    info = get_method(method)
    if variant == "own":
        return info.conv, info.linear_layer
    setting = published_settings().get(info.key)
    if variant != "published" or setting is None or setting.conv is None or setting.linear_layer is None:
        known = [key for key, setting in published_settings().items() if setting.conv is not None]
        allowed = f'use "own", or "published" of {", ".join(known)}'
        raise InvalidInputError(f"{info.key} has no variant {variant!r}, {allowed}")
    return setting.conv, setting.linear_layer
