"""Bjorck and Bowie: the closest orthogonal matrix, by iteration (1971; as a layer: Anil et al., 2019).

The matrix is first rescaled by AOL on its shorter side, which makes its norm at most 1 for sure, and then replaced by
its polar factor U: all singular values become 1. A kernel is unrolled to out x (in k k); every pixel stands in k * k
patches, so the convolution has norm at most k ||U||. Dividing by k is valid but loose: a kernel of one tap loses two
thirds in every layer. So the kernel is divided by the smaller of two bounds, k and the one of AOL.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from onelip.layers.contract import Request, Traits
from onelip.layers.kernel_layers import KernelConv2d, PolarLinear
from onelip.layers.operators import Kernel, Matrix
from onelip.layers.registry import MethodInfo
from onelip.linalg.polar import training_polar_factor
from onelip.linalg.rescaling import aol_scale, rescaled_isometry


def rescaled(matrix: Tensor) -> Tensor:
    """The matrix rescaled by AOL on its shorter side, of norm at most 1."""
    if matrix.shape[-2] < matrix.shape[-1]:
        return rescaled(matrix.mT).mT
    return matrix * aol_scale(matrix)[..., None, :]


TRAITS = Traits(keeps_directions=True, holds_for_volumes=True, zero_channels_stay_zero=True)


class BjorckConv2d(KernelConv2d):
    """Convolution with an orthogonalised unrolled kernel, divided by a bound of its norm."""

    traits = TRAITS

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Kernel:
        """Orthogonalise the out x (in k k) matrix, rescale the kernel."""
        kernel = tensors["weight"]
        rows = training_polar_factor(rescaled(kernel.flatten(-3)), request.approximate)
        return Kernel(rescaled_isometry(rows.reshape(kernel.shape)), self.padding_mode)


class BjorckLinear(PolarLinear):
    """Linear layer with an orthogonal matrix."""

    traits = TRAITS

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """Polar factor of the rescaled matrix."""
        return Matrix(self.orthonormal(rescaled(tensors["weight"]), request))


METHOD = MethodInfo(
    key="bjorck",
    guarantee="bounded",
    conv=BjorckConv2d,
    linear_layer=BjorckLinear,
    training_approximation="polar factors from eigenvectors of float32 Gram matrices",
)
