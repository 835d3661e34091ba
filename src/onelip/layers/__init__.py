"""1-Lipschitz layers. Every file in `methods/` is a method; the registry finds it.

from onelip.layers import SOCConv2d, create_conv, list_methods

create_conv("aol", 16, 32, kernel_size=3)   # the same as AOLConv2d(16, 32, kernel_size=3)
"""

from __future__ import annotations

from inspect import isclass as _isclass
from inspect import isfunction as _isfunction
from typing import TYPE_CHECKING

from torch import nn as _nn

from onelip.layers.blocks.activations import Abs as Abs
from onelip.layers.blocks.activations import GroupSort as GroupSort
from onelip.layers.blocks.activations import Householder as Householder
from onelip.layers.blocks.activations import MaxMin as MaxMin
from onelip.layers.blocks.centering import BatchCentering as BatchCentering
from onelip.layers.blocks.centering import BatchLipNorm as BatchLipNorm
from onelip.layers.blocks.centering import LayerCentering as LayerCentering
from onelip.layers.blocks.combine import ConvexSum as ConvexSum
from onelip.layers.blocks.combine import FlipAverage as FlipAverage
from onelip.layers.blocks.combine import LipschitzConcat as LipschitzConcat
from onelip.layers.blocks.combine import LipschitzResidual as LipschitzResidual
from onelip.layers.blocks.combine import UnitRowsLinear as UnitRowsLinear
from onelip.layers.blocks.piecewise import FullSort as FullSort
from onelip.layers.blocks.piecewise import LipschitzPReLU as LipschitzPReLU
from onelip.layers.blocks.piecewise import NActivation as NActivation
from onelip.layers.blocks.pooling import AdaptiveL2NormPool2d as AdaptiveL2NormPool2d
from onelip.layers.blocks.pooling import L2NormPool2d as L2NormPool2d
from onelip.layers.blocks.pooling import ScaledAdaptiveAvgPool2d as ScaledAdaptiveAvgPool2d
from onelip.layers.blocks.pooling import ScaledAvgPool2d as ScaledAvgPool2d
from onelip.layers.blocks.pooling import ScaledMaxPool2d as ScaledMaxPool2d
from onelip.layers.blocks.reshape import FirstChannels as FirstChannels
from onelip.layers.blocks.reshape import ZeroChannelPad as ZeroChannelPad
from onelip.layers.blocks.reshape import ZeroSpatialPad as ZeroSpatialPad
from onelip.layers.convolutions import LipschitzConv2d as LipschitzConv2d
from onelip.layers.creation import CLASSES as _CLASSES
from onelip.layers.creation import Variant as Variant
from onelip.layers.creation import create_conv as create_conv
from onelip.layers.creation import create_conv1d as create_conv1d
from onelip.layers.creation import create_conv3d as create_conv3d
from onelip.layers.creation import create_conv_transpose as create_conv_transpose
from onelip.layers.creation import create_linear as create_linear
from onelip.layers.creation import get_method as get_method
from onelip.layers.creation import list_methods as list_methods
from onelip.layers.creation import parametrize as parametrize
from onelip.layers.layer import LipschitzLayer as LipschitzLayer
from onelip.layers.linear import LipschitzLinear as LipschitzLinear
from onelip.layers.methods import bcop as _bcop
from onelip.layers.methods.spectral import FrobeniusConv2d as FrobeniusConv2d
from onelip.layers.registry import MethodInfo as MethodInfo
from onelip.layers.registry import install_forms as _install_forms
from onelip.layers.variants import LipschitzConv1d as LipschitzConv1d
from onelip.layers.variants import LipschitzConvTranspose2d as LipschitzConvTranspose2d
from onelip.layers.variants import transposed as _transposed
from onelip.layers.volumes import LipschitzConv3d as LipschitzConv3d
from onelip.proofs import operator_bounds as _bounds  # noqa: F401 - what is proven about operators
from onelip.protocol import Complexity as Complexity

# The names that deel-torchlip and orthogonium give these classes; docs/coming_from.md has the whole table. Arguments
# and defaults are ours: code that imports them by the other name runs, weights that were saved there do not fit.
AdaptiveOrthoConv2d = _bcop.BCOPConv2d
AdaptiveOrthoConvTranspose2d = _transposed(_bcop.BCOPConv2d)
BatchCentering2D = BatchCentering
FrobeniusLinear = UnitRowsLinear
GroupSort2 = MaxMin
HouseHolder = Householder
InvertibleDownSampling = _nn.PixelUnshuffle
InvertibleUpSampling = _nn.PixelShuffle
LayerCentering2D = LayerCentering
LipResidual = LipschitzResidual
LPReLU = LipschitzPReLU
OrthoLinear = _bcop.BCOPLinear
ScaledAdaptativeL2NormPool2d = AdaptiveL2NormPool2d  # spelt as there
ScaledL2NormPool2d = L2NormPool2d
UnitNormLinear = UnitRowsLinear

if TYPE_CHECKING:
    from onelip.layers.methods.aoc import AOCConv2d as AOCConv2d
    from onelip.layers.methods.aoc import AOCLinear as AOCLinear
    from onelip.layers.methods.aol import AOLConv2d as AOLConv2d
    from onelip.layers.methods.aol import AOLLinear as AOLLinear
    from onelip.layers.methods.bcop import BCOPConv2d as BCOPConv2d
    from onelip.layers.methods.bcop import BCOPLinear as BCOPLinear
    from onelip.layers.methods.bjorck import BjorckConv2d as BjorckConv2d
    from onelip.layers.methods.bjorck import BjorckLinear as BjorckLinear
    from onelip.layers.methods.bro import BROConv2d as BROConv2d
    from onelip.layers.methods.bro import BROLinear as BROLinear
    from onelip.layers.methods.cayley import CayleyConv2d as CayleyConv2d
    from onelip.layers.methods.cayley import CayleyLinear as CayleyLinear
    from onelip.layers.methods.cholesky import CholeskyConv2d as CholeskyConv2d
    from onelip.layers.methods.cholesky import CholeskyLinear as CholeskyLinear
    from onelip.layers.methods.cpl import CPLConv2d as CPLConv2d
    from onelip.layers.methods.cpl import CPLLinear as CPLLinear
    from onelip.layers.methods.eco import ECOConv2d as ECOConv2d
    from onelip.layers.methods.eco import ECOLinear as ECOLinear
    from onelip.layers.methods.lot import LOTConv2d as LOTConv2d
    from onelip.layers.methods.lot import LOTLinear as LOTLinear
    from onelip.layers.methods.oni import ONIConv2d as ONIConv2d
    from onelip.layers.methods.oni import ONILinear as ONILinear
    from onelip.layers.methods.sandwich import SandwichConv2d as SandwichConv2d
    from onelip.layers.methods.sandwich import SandwichLinear as SandwichLinear
    from onelip.layers.methods.sll import SLLConv2d as SLLConv2d
    from onelip.layers.methods.sll import SLLLinear as SLLLinear
    from onelip.layers.methods.soc import SOCConv2d as SOCConv2d
    from onelip.layers.methods.soc import SOCLinear as SOCLinear
    from onelip.layers.methods.spectral import SpectralConv2d as SpectralConv2d
    from onelip.layers.methods.spectral import SpectralLinear as SpectralLinear
    from onelip.layers.methods.standard import StandardConv2d as StandardConv2d
    from onelip.layers.methods.standard import StandardLinear as StandardLinear
    from onelip.layers.methods.stiefel import StiefelConv2d as StiefelConv2d
    from onelip.layers.methods.stiefel import StiefelLinear as StiefelLinear

    __all__: list[str]

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
else:
    globals().update(_CLASSES)
    _public = {name for name, value in globals().items() if name[0] != "_" and (_isclass(value) or _isfunction(value))}
    globals()["__all__"] = sorted(_public)

_install_forms()
