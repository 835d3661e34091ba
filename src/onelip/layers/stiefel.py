"""Stiefel: weights that are orthonormal as they are stored, and kept so by the optimiser (Hu, Hu, Fredrikson, 2026).

The other methods transform free parameters in every step. Here every matrix of BCOP's formula, the mixer H and the
factors R of its projections, is a point of the Stiefel manifold: each step of the optimiser is followed by a retraction
(`onelip.optim`), and the forward pass needs two products per matrix to be safe from drift, no eigenvectors. LipNeXt
trains its 1 x 1 mixers so; with BCOP's product the same holds for k x k kernels.

Layers are 1-Lipschitz for every value of the parameters, by `onelip.linalg.near_orthogonal`: weights that have left the
manifold are scaled down, never trusted. They are orthogonal as far as the stored weights are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onelip.layers.base import LipschitzLayer
from onelip.layers.bcop import METHOD as BCOP
from onelip.layers.bcop import BCOPConv2d, BCOPLinear
from onelip.layers.info import Complexity, MethodInfo
from onelip.linalg.near_orthogonal import nearly_polar, retracted


class OnManifold(LipschitzLayer):
    """A layer all of whose matrices are to be kept orthonormal."""

    @torch.no_grad()
    def retract_(self) -> None:
        """Replace every matrix by the nearest one with orthonormal columns or rows."""
        for matrix in self.matrices():
            matrix.copy_(retracted(matrix))

    def matrices(self) -> list[nn.Parameter]:
        """The parameters that are points of a Stiefel manifold, or stacks of such."""
        return [value for name, value in self.named_parameters(recurse=False) if name != "bias"]


class StiefelConv2d(OnManifold, BCOPConv2d):
    """BCOP's convolution of matrices that are stored orthonormal."""

    zero_channels_stay_zero = False  # `nearly_polar` counts their distance from orthonormal ones

    def orthonormal(self, matrix: Tensor) -> Tensor:
        """A polar factor of a matrix that nearly is one."""
        return nearly_polar(matrix)

    def start(self) -> None:
        """BCOP's start, on the manifold."""
        super().start()
        if self.init != "published":
            self.retract_()


class StiefelLinear(OnManifold, BCOPLinear):
    """Linear layer with a matrix that is stored orthonormal."""

    def orthonormal(self, matrix: Tensor) -> Tensor:
        """A polar factor of a matrix that nearly is one."""
        return nearly_polar(matrix)

    def start(self) -> None:
        """An orthonormal matrix."""
        super().start()
        if self.init != "published":
            self.retract_()


METHOD = MethodInfo(
    key="stiefel",
    title="Stiefel",
    paper="LipNeXt: Scaling up Lipschitz-based Certified Robustness to Billion-parameter Models",
    year=2026,
    link="https://arxiv.org/abs/2601.18513",
    guarantee="bounded",
    linear=True,
    conv=StiefelConv2d,
    linear_layer=StiefelLinear,
    learning_rate=BCOP.learning_rate,
    short_learning_rate=0.005,
    published=Complexity(
        input_operations="CONV",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="none for 1 x 1",
        parameter_macs="0",
        parameter_memory="c**2",
    ),
    ours=Complexity(
        input_operations="CONV, or by frequency",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="MMs",
        parameter_macs="c**3*(2*k**3/3 - k**2/2 + 5*k/6 + 1)",
        parameter_memory="c**2*(k**3 + k**2/4 + 25*k/4 + 7/4)",
    ),
)
