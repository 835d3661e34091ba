"""Stiefel: weights that are orthonormal as they are stored, and kept so by the optimiser (Hu, Hu, Fredrikson, 2026).

The other methods transform free parameters in every step. Here every matrix of BCOP's formula, the mixer H and the
factors R of its projections, is a point of the Stiefel manifold: each step of the optimiser is followed by a retraction
(`onelip.optim`), and the forward pass needs two products per matrix to be safe from drift, no eigenvectors. LipNeXt
trains its 1 x 1 mixers so; with BCOP's product the same holds for k x k kernels.

Layers are 1-Lipschitz for every value of the parameters, by `onelip.linalg.near_orthogonal`: weights that have left the
manifold are scaled down, never trusted. They are orthogonal as far as the stored weights are.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from onelip.layers.contract import Request
from onelip.layers.layer import LipschitzLayer
from onelip.layers.methods.bcop import BCOPConv2d, BCOPLinear
from onelip.layers.registry import MethodInfo
from onelip.linalg.near_orthogonal import nearly_polar, retracted


def retract(tensors: dict[str, Tensor]) -> None:
    """Replace every matrix in place by the nearest one with orthonormal columns or rows."""
    for name, matrix in tensors.items():
        if name != "bias":
            matrix.copy_(retracted(matrix))


class OnManifold(LipschitzLayer):
    """A layer all of whose matrices are to be kept orthonormal."""

    @torch.no_grad()
    def retract_(self) -> None:
        """Replace every matrix by the nearest one with orthonormal columns or rows."""
        retract(dict(self.named_parameters(recurse=False)))

    def orthonormal(self, matrix: Tensor, request: Request) -> Tensor:
        """A polar factor of a matrix that nearly is one."""
        return nearly_polar(matrix)

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """BCOP's start, on the manifold."""
        super().initialise(tensors)
        if self.init != "published":
            retract(tensors)

    def matrices(self) -> list[nn.Parameter]:
        """The parameters that are points of a Stiefel manifold, or stacks of such."""
        return [value for name, value in self.named_parameters(recurse=False) if name != "bias"]


class StiefelConv2d(OnManifold, BCOPConv2d):
    """BCOP's convolution of matrices that are stored orthonormal."""

    # `nearly_polar` counts the distance of matrices from orthonormal ones, zeros included.
    traits = replace(BCOPConv2d.traits, zero_channels_stay_zero=False)


class StiefelLinear(OnManifold, BCOPLinear):
    """Linear layer with a matrix that is stored orthonormal."""


METHOD = MethodInfo(
    key="stiefel",
    guarantee="bounded",
    conv=StiefelConv2d,
    linear_layer=StiefelLinear,
)
