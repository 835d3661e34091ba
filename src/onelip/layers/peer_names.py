"""Layers under the names that deel-torchlip and orthogonium give them; docs/your_model.md has the whole table.

They are the classes of this package, with its arguments and defaults: code that imports them by the other name runs,
weights that were saved there do not fit.
"""

from __future__ import annotations

from torch import nn

from onelip.layers.blocks.activations import Householder, MaxMin
from onelip.layers.blocks.centering import BatchCentering, LayerCentering
from onelip.layers.blocks.combine import LipschitzResidual, UnitRowsLinear
from onelip.layers.blocks.piecewise import LipschitzPReLU
from onelip.layers.blocks.pooling import AdaptiveL2NormPool2d, L2NormPool2d
from onelip.layers.methods.bcop import BCOPConv2d, BCOPLinear
from onelip.layers.variants import transposed

GroupSort2 = MaxMin
HouseHolder = Householder
LPReLU = LipschitzPReLU
LipResidual = LipschitzResidual
ScaledL2NormPool2d = L2NormPool2d
ScaledAdaptativeL2NormPool2d = AdaptiveL2NormPool2d  # spelt as there
InvertibleDownSampling = nn.PixelUnshuffle
InvertibleUpSampling = nn.PixelShuffle
AdaptiveOrthoConv2d = BCOPConv2d
AdaptiveOrthoConvTranspose2d = transposed(BCOPConv2d)
OrthoLinear = BCOPLinear
UnitNormLinear = UnitRowsLinear
FrobeniusLinear = UnitRowsLinear
BatchCentering2D = BatchCentering
LayerCentering2D = LayerCentering
