"""1-Lipschitz layers: every file in this folder that defines METHOD is a method, found by itself.

from onelip.layers import SOCConv2d, create_conv, list_methods

create_conv("aol", 16, 32, kernel_size=3)   # the same as AOLConv2d(16, 32, kernel_size=3)
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from torch import nn

from onelip.errors import InvalidInputError, did_you_mean
from onelip.layers.activations import Abs, GroupSort, Householder, MaxMin
from onelip.layers.base import LipschitzLayer
from onelip.layers.centering import BatchCentering, BatchLipNorm, LayerCentering
from onelip.layers.combine import ConvexSum, FlipAverage, LipschitzConcat, LipschitzResidual, UnitRowsLinear
from onelip.layers.info import Complexity, MethodInfo
from onelip.layers.parametrization import constrain
from onelip.layers.peer_names import (
    AdaptiveOrthoConv2d,
    AdaptiveOrthoConvTranspose2d,
    BatchCentering2D,
    FrobeniusLinear,
    GroupSort2,
    HouseHolder,
    InvertibleDownSampling,
    InvertibleUpSampling,
    LayerCentering2D,
    LipResidual,
    LPReLU,
    OrthoLinear,
    ScaledAdaptativeL2NormPool2d,
    ScaledL2NormPool2d,
    UnitNormLinear,
)
from onelip.layers.piecewise import FullSort, LipschitzPReLU, NActivation
from onelip.layers.pooling import (
    AdaptiveL2NormPool2d,
    L2NormPool2d,
    ScaledAdaptiveAvgPool2d,
    ScaledAvgPool2d,
    ScaledMaxPool2d,
)
from onelip.layers.reshape import FirstChannels, ZeroChannelPad, ZeroSpatialPad
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear
from onelip.layers.spectral import FrobeniusConv2d
from onelip.layers.variants import LipschitzConv1d, LipschitzConvTranspose2d, of_signals, transposed
from onelip.layers.volumes import LipschitzConv3d, of_volumes

if TYPE_CHECKING:
    from onelip.layers.aoc import AOCConv2d, AOCLinear
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
    from onelip.layers.stiefel import StiefelConv2d, StiefelLinear

    # Made at run time, from the convolutions; they take the further arguments of those too.
    AOCConv1d = LipschitzConv1d
    AOCConvTranspose2d = LipschitzConvTranspose2d
    AOLConv1d = LipschitzConv1d
    AOLConv3d = LipschitzConv3d
    BjorckConv3d = LipschitzConv3d
    CPLConv3d = LipschitzConv3d
    ONIConv3d = LipschitzConv3d
    SLLConv3d = LipschitzConv3d
    SpectralConv3d = LipschitzConv3d
    StandardConv3d = LipschitzConv3d
    AOLConvTranspose2d = LipschitzConvTranspose2d
    BCOPConv1d = LipschitzConv1d
    BCOPConvTranspose2d = LipschitzConvTranspose2d
    BROConv1d = LipschitzConv1d
    BROConvTranspose2d = LipschitzConvTranspose2d
    BjorckConv1d = LipschitzConv1d
    BjorckConvTranspose2d = LipschitzConvTranspose2d
    CPLConv1d = LipschitzConv1d
    CPLConvTranspose2d = LipschitzConvTranspose2d
    CayleyConv1d = LipschitzConv1d
    CayleyConvTranspose2d = LipschitzConvTranspose2d
    CholeskyConv1d = LipschitzConv1d
    CholeskyConvTranspose2d = LipschitzConvTranspose2d
    ECOConv1d = LipschitzConv1d
    ECOConvTranspose2d = LipschitzConvTranspose2d
    LOTConv1d = LipschitzConv1d
    LOTConvTranspose2d = LipschitzConvTranspose2d
    ONIConv1d = LipschitzConv1d
    ONIConvTranspose2d = LipschitzConvTranspose2d
    SLLConv1d = LipschitzConv1d
    SLLConvTranspose2d = LipschitzConvTranspose2d
    SOCConv1d = LipschitzConv1d
    SOCConvTranspose2d = LipschitzConvTranspose2d
    SandwichConv1d = LipschitzConv1d
    SandwichConvTranspose2d = LipschitzConvTranspose2d
    SpectralConv1d = LipschitzConv1d
    SpectralConvTranspose2d = LipschitzConvTranspose2d
    StandardConv1d = LipschitzConv1d
    StandardConvTranspose2d = LipschitzConvTranspose2d
    StiefelConv1d = LipschitzConv1d
    StiefelConvTranspose2d = LipschitzConvTranspose2d


def _find_methods() -> dict[str, MethodInfo]:
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    methods = [module.METHOD for module in modules if hasattr(module, "METHOD")]
    return {method.key: method for method in sorted(methods, key=lambda method: method.key)}


Variant = Literal["own", "published"]
AnyModule = TypeVar("AnyModule", bound=nn.Module)

_METHODS = _find_methods()
_TRANSPOSED = {key: transposed(method.conv) for key, method in _METHODS.items()}
_OF_SIGNALS = {key: of_signals(method.conv) for key, method in _METHODS.items()}
_OF_VOLUMES = {key: of_volumes(method.conv) for key, method in _METHODS.items() if method.conv.holds_for_volumes}
_CLASSES = {
    **{c.__name__: c for method in _METHODS.values() for c in (method.conv, method.linear_layer)},
    **{c.__name__: c for variants in (_TRANSPOSED, _OF_SIGNALS, _OF_VOLUMES) for c in variants.values()},
}
globals().update(_CLASSES)


def list_methods() -> list[MethodInfo]:
    """All methods in alphabetical order of their keys."""
    return list(_METHODS.values())


def get_method(key: str) -> MethodInfo:
    """The method with this key, in any case."""
    method = _METHODS.get(key.lower()) if isinstance(key, str) else None
    if method is None:
        close = did_you_mean(str(key), _METHODS)
        raise InvalidInputError(f"there is no method {key!r}, use one of {', '.join(_METHODS)}{close}")
    return method


def create_conv(method: str, *args: Any, variant: Variant = "own", **kwargs: Any) -> LipschitzConv2d:
    """`<Method>Conv2d(*args, **kwargs)` by the method's key.

    variant="published" is the layer of the public code where no certificate can be made of it: eco and sandwich.
    """
    return _classes(method, variant)[0](*args, **kwargs)


def create_conv_transpose(method: str, *args: Any, **kwargs: Any) -> LipschitzConvTranspose2d:
    """`<Method>ConvTranspose2d(*args, **kwargs)` by the method's key."""
    return _TRANSPOSED[get_method(method).key](*args, **kwargs)


def create_conv1d(method: str, *args: Any, **kwargs: Any) -> LipschitzConv1d:
    """`<Method>Conv1d(*args, **kwargs)` by the method's key."""
    return _OF_SIGNALS[get_method(method).key](*args, **kwargs)


def create_conv3d(method: str, *args: Any, **kwargs: Any) -> LipschitzConv3d:
    """`<Method>Conv3d(*args, **kwargs)` by the method's key, for the methods that have one."""
    key = get_method(method).key
    if key not in _OF_VOLUMES:
        raise InvalidInputError(f"{key} has no convolution of volumes; use one of {', '.join(_OF_VOLUMES)}")
    return _OF_VOLUMES[key](*args, **kwargs)


def create_linear(method: str, *args: Any, variant: Variant = "own", **kwargs: Any) -> LipschitzLinear:
    """`<Method>Linear(*args, **kwargs)` by the method's key; `variant` as for `create_conv`."""
    return _classes(method, variant)[1](*args, **kwargs)


def parametrize(module: AnyModule, method: str = "bjorck", name: str = "weight") -> AnyModule:
    """Constrain a weight of a module of torch's in place, by the transformation of a method; returns the module.

    Args:
        module: a linear layer, a convolution of signals or images, transposed or not, or any module with a matrix.
        method: for matrices aol, bcop, bjorck, cholesky, lot, oni or spectral; for kernels aol, bjorck or oni.
        name: the parameter.

    `torch.nn.utils.parametrize.remove_parametrizations(module, name)` leaves the constrained weight in its place.
    """
    constrain(module, get_method(method), name)
    return module


def _classes(method: str, variant: str) -> tuple[type[LipschitzConv2d], type[LipschitzLinear]]:
    info = get_method(method)
    if variant == "own":
        return info.conv, info.linear_layer
    setting = info.setting
    if variant != "published" or setting is None or setting.conv is None or setting.linear_layer is None:
        known = [key for key, other in _METHODS.items() if other.setting and other.setting.conv]
        allowed = f'use "own", or "published" of {", ".join(known)}'
        raise InvalidInputError(f"{info.key} has no variant {variant!r}, {allowed}")
    return setting.conv, setting.linear_layer


__all__ = [
    "AOCConv1d",
    "AOCConv2d",
    "AOCConvTranspose2d",
    "AOCLinear",
    "AOLConv1d",
    "AOLConv2d",
    "AOLConv3d",
    "AOLConvTranspose2d",
    "AOLLinear",
    "Abs",
    "AdaptiveL2NormPool2d",
    "AdaptiveOrthoConv2d",
    "AdaptiveOrthoConvTranspose2d",
    "BCOPConv1d",
    "BCOPConv2d",
    "BCOPConvTranspose2d",
    "BCOPLinear",
    "BROConv1d",
    "BROConv2d",
    "BROConvTranspose2d",
    "BROLinear",
    "BatchCentering",
    "BatchCentering2D",
    "BatchLipNorm",
    "BjorckConv1d",
    "BjorckConv2d",
    "BjorckConv3d",
    "BjorckConvTranspose2d",
    "BjorckLinear",
    "CPLConv1d",
    "CPLConv2d",
    "CPLConv3d",
    "CPLConvTranspose2d",
    "CPLLinear",
    "CayleyConv1d",
    "CayleyConv2d",
    "CayleyConvTranspose2d",
    "CayleyLinear",
    "CholeskyConv1d",
    "CholeskyConv2d",
    "CholeskyConvTranspose2d",
    "CholeskyLinear",
    "Complexity",
    "ConvexSum",
    "ECOConv1d",
    "ECOConv2d",
    "ECOConvTranspose2d",
    "ECOLinear",
    "FirstChannels",
    "FlipAverage",
    "FrobeniusConv2d",
    "FrobeniusLinear",
    "FullSort",
    "GroupSort",
    "GroupSort2",
    "HouseHolder",
    "Householder",
    "InvertibleDownSampling",
    "InvertibleUpSampling",
    "L2NormPool2d",
    "LOTConv1d",
    "LOTConv2d",
    "LOTConvTranspose2d",
    "LOTLinear",
    "LPReLU",
    "LayerCentering",
    "LayerCentering2D",
    "LipResidual",
    "LipschitzConcat",
    "LipschitzConv1d",
    "LipschitzConv2d",
    "LipschitzConv3d",
    "LipschitzConvTranspose2d",
    "LipschitzLayer",
    "LipschitzLinear",
    "LipschitzPReLU",
    "LipschitzResidual",
    "MaxMin",
    "MethodInfo",
    "NActivation",
    "ONIConv1d",
    "ONIConv2d",
    "ONIConv3d",
    "ONIConvTranspose2d",
    "ONILinear",
    "OrthoLinear",
    "SLLConv1d",
    "SLLConv2d",
    "SLLConv3d",
    "SLLConvTranspose2d",
    "SLLLinear",
    "SOCConv1d",
    "SOCConv2d",
    "SOCConvTranspose2d",
    "SOCLinear",
    "SandwichConv1d",
    "SandwichConv2d",
    "SandwichConvTranspose2d",
    "SandwichLinear",
    "ScaledAdaptativeL2NormPool2d",
    "ScaledAdaptiveAvgPool2d",
    "ScaledAvgPool2d",
    "ScaledL2NormPool2d",
    "ScaledMaxPool2d",
    "SpectralConv1d",
    "SpectralConv2d",
    "SpectralConv3d",
    "SpectralConvTranspose2d",
    "SpectralLinear",
    "StandardConv1d",
    "StandardConv2d",
    "StandardConv3d",
    "StandardConvTranspose2d",
    "StandardLinear",
    "StiefelConv1d",
    "StiefelConv2d",
    "StiefelConvTranspose2d",
    "StiefelLinear",
    "UnitNormLinear",
    "UnitRowsLinear",
    "ZeroChannelPad",
    "ZeroSpatialPad",
    "create_conv",
    "create_conv1d",
    "create_conv3d",
    "create_conv_transpose",
    "create_linear",
    "get_method",
    "list_methods",
    "parametrize",
]

# The list above is for type checkers, which do not run this file; the names of all methods found belong to it.
globals()["__all__"] = sorted({*__all__, *_CLASSES})
