"""ONI: orthogonalisation by Newton's iteration (Huang et al., 2020).

W = (V V^T)^(-1/2) V has orthonormal rows (columns where there are fewer of them). The inverse square root comes
from a coupled Newton iteration whose iterates stay below their limit. A kernel is unrolled, and divided by a bound of
its norm as for `bjorck`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from onelip.layers.contract import Request, Traits
from onelip.layers.kernel_layers import KernelConv2d, PolarLinear
from onelip.layers.operators import Kernel
from onelip.layers.registry import MethodInfo
from onelip.linalg.devices import is_cpu
from onelip.linalg.polar import polar_factor, training_polar_factor, trains_in_single
from onelip.linalg.rescaling import rescaled_isometry


def newton_polar_factor(matrix: Tensor, approximate: bool) -> Tensor:
    """The polar factor by Newton's iteration; in float32 training, and on other devices, by what is fastest there."""
    if trains_in_single(matrix, approximate) or not is_cpu(matrix.device):
        return training_polar_factor(matrix, approximate)
    return polar_factor(matrix, iteration="newton")


# The final cubic steps land on norm 1 to rounding in float32 already; in float64 there are twice as many steps.
TRAITS = Traits(keeps_directions=True, holds_for_volumes=True, zero_channels_stay_zero=True, evaluates_in_float64=False)


class ONIConv2d(KernelConv2d):
    """Convolution with an orthogonalised unrolled kernel, divided by a bound of its norm."""

    traits = TRAITS

    # The final cubic steps land on norm 1 to rounding in float32 already; in float64 there are twice as many steps.
    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Kernel:
        """Orthogonalise the out x (in k k) matrix, rescale the kernel."""
        kernel = tensors["weight"]
        rows = newton_polar_factor(kernel.flatten(-3), request.approximate)
        return Kernel(rescaled_isometry(rows.reshape(kernel.shape)), self.padding_mode)


class ONILinear(PolarLinear):
    """Linear layer with an orthogonal matrix."""

    traits = TRAITS

    def orthonormal(self, matrix: Tensor, request: Request) -> Tensor:
        """The polar factor, by Newton's iteration where exactness counts."""
        if trains_in_single(matrix, request.approximate):
            return super().orthonormal(matrix, request)
        return newton_polar_factor(matrix, request.approximate)


METHOD = MethodInfo(
    key="oni",
    guarantee="bounded",
    conv=ONIConv2d,
    linear_layer=ONILinear,
    training_approximation="polar factors from eigenvectors of float32 Gram matrices",
)
