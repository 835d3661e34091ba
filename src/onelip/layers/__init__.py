"""1-Lipschitz layers: every file in this folder that defines METHOD is a method, found by itself.

from onelip.layers import SOCConv2d, create_conv, list_methods

create_conv("aol", 16, 32, kernel_size=3)   # the same as AOLConv2d(16, 32, kernel_size=3)
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from onelip.errors import InvalidInputError
from onelip.layers.activations import Abs, GroupSort, Householder, MaxMin
from onelip.layers.base import LipschitzLayer
from onelip.layers.centering import BatchCentering, BatchLipNorm, LayerCentering
from onelip.layers.combine import ConvexSum, LipschitzConcat, LipschitzResidual, UnitRowsLinear
from onelip.layers.info import Complexity, MethodInfo
from onelip.layers.piecewise import FullSort, LipschitzPReLU, NActivation
from onelip.layers.pooling import L2NormPool2d, ScaledAdaptiveAvgPool2d, ScaledAvgPool2d, ScaledMaxPool2d
from onelip.layers.reshape import FirstChannels, ZeroChannelPad, ZeroSpatialPad
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear

if TYPE_CHECKING:
    from onelip.layers.aol import AOLConv2d, AOLLinear
    from onelip.layers.bcop import BCOPConv2d, BCOPLinear
    from onelip.layers.bjorck import BjorckConv2d, BjorckLinear
    from onelip.layers.bro import BROConv2d, BROLinear
    from onelip.layers.cayley import CayleyConv2d, CayleyLinear
    from onelip.layers.cholesky import CholeskyConv2d, CholeskyLinear
    from onelip.layers.cpl import CPLConv2d, CPLLinear
    from onelip.layers.eco import ECOConv2d, ECOLinear
    from onelip.layers.lot import LOTConv2d, LOTLinear
    from onelip.layers.oni import ONIConv2d, ONILinear
    from onelip.layers.sandwich import SandwichConv2d, SandwichLinear
    from onelip.layers.sll import SLLConv2d, SLLLinear
    from onelip.layers.soc import SOCConv2d, SOCLinear
    from onelip.layers.spectral import SpectralConv2d, SpectralLinear
    from onelip.layers.standard import StandardConv2d, StandardLinear


def _find_methods() -> dict[str, MethodInfo]:
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    methods = [module.METHOD for module in modules if hasattr(module, "METHOD")]
    return {method.key: method for method in sorted(methods, key=lambda method: method.key)}


_METHODS = _find_methods()
_CLASSES = {c.__name__: c for method in _METHODS.values() for c in (method.conv, method.linear_layer)}
globals().update(_CLASSES)


def list_methods() -> list[MethodInfo]:
    """All methods in alphabetical order of their keys."""
    return list(_METHODS.values())


def get_method(key: str) -> MethodInfo:
    """The method with this key, in any case."""
    method = _METHODS.get(key.lower())
    if method is None:
        raise InvalidInputError(f"there is no method {key!r}, use one of {', '.join(_METHODS)}")
    return method


def create_conv(method: str, *args: Any, **kwargs: Any) -> LipschitzConv2d:
    """`<Method>Conv2d(*args, **kwargs)` by the method's key."""
    return get_method(method).conv(*args, **kwargs)


def create_linear(method: str, *args: Any, **kwargs: Any) -> LipschitzLinear:
    """`<Method>Linear(*args, **kwargs)` by the method's key."""
    return get_method(method).linear_layer(*args, **kwargs)


__all__ = [
    "AOLConv2d",
    "AOLLinear",
    "Abs",
    "BCOPConv2d",
    "BCOPLinear",
    "BROConv2d",
    "BROLinear",
    "BatchCentering",
    "BatchLipNorm",
    "BjorckConv2d",
    "BjorckLinear",
    "CPLConv2d",
    "CPLLinear",
    "CayleyConv2d",
    "CayleyLinear",
    "CholeskyConv2d",
    "CholeskyLinear",
    "Complexity",
    "ConvexSum",
    "ECOConv2d",
    "ECOLinear",
    "FirstChannels",
    "FullSort",
    "GroupSort",
    "Householder",
    "L2NormPool2d",
    "LOTConv2d",
    "LOTLinear",
    "LayerCentering",
    "LipschitzConcat",
    "LipschitzConv2d",
    "LipschitzLayer",
    "LipschitzLinear",
    "LipschitzPReLU",
    "LipschitzResidual",
    "MaxMin",
    "MethodInfo",
    "NActivation",
    "ONIConv2d",
    "ONILinear",
    "SLLConv2d",
    "SLLLinear",
    "SOCConv2d",
    "SOCLinear",
    "SandwichConv2d",
    "SandwichLinear",
    "ScaledAdaptiveAvgPool2d",
    "ScaledAvgPool2d",
    "ScaledMaxPool2d",
    "SpectralConv2d",
    "SpectralLinear",
    "StandardConv2d",
    "StandardLinear",
    "UnitRowsLinear",
    "ZeroChannelPad",
    "ZeroSpatialPad",
    "create_conv",
    "create_linear",
    "get_method",
    "list_methods",
]

# The list above is for type checkers, which do not run this file; the names of all methods found belong to it.
globals()["__all__"] = sorted({*__all__, *_CLASSES})
