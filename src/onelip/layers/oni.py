"""ONI: orthogonalisation by Newton's iteration (Huang et al., 2020).

W = (V V^T)^(-1/2) V has orthonormal rows (columns where there are fewer of them). The inverse square root comes
from a coupled Newton iteration whose iterates stay below their limit. A kernel is unrolled, and divided by a bound of
its norm as for `bjorck`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from onelip.layers.info import Complexity, MethodInfo
from onelip.layers.spatial import KernelConv2d, PolarLinear
from onelip.layers.transformed import Kernel
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.fourier import Size
from onelip.linalg.polar import polar_factor, training_polar_factor, trains_in_single
from onelip.linalg.rescaling import rescaled_isometry


def newton_polar_factor(matrix: Tensor, training: bool) -> Tensor:
    """The polar factor by Newton's iteration; in float32 training, and on other devices, by what is fastest there."""
    if trains_in_single(matrix, training) or not suits_cpu(matrix.device):
        return training_polar_factor(matrix, training)
    return polar_factor(matrix, iteration="newton")


class ONIConv2d(KernelConv2d):
    """Convolution with an orthogonalised unrolled kernel, divided by a bound of its norm."""

    zero_channels_stay_zero = True
    holds_for_volumes = True

    keeps_directions = True
    # The final cubic steps land on norm 1 to rounding in float32 already; in float64 there are twice as many steps.
    evaluates_in_float64 = False

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Kernel:
        """Orthogonalise the out x (in k k) matrix, rescale the kernel."""
        kernel = tensors["weight"]
        rows = newton_polar_factor(kernel.flatten(-3), self.training)
        return Kernel(rescaled_isometry(rows.reshape(kernel.shape)), self.padding_mode)


class ONILinear(PolarLinear):
    """Linear layer with an orthogonal matrix."""

    keeps_directions = True
    evaluates_in_float64 = False

    def orthonormal(self, matrix: Tensor) -> Tensor:
        """The polar factor, by Newton's iteration where exactness counts."""
        if trains_in_single(matrix, self.training):
            return super().orthonormal(matrix)
        return newton_polar_factor(matrix, self.training)


METHOD = MethodInfo(
    key="oni",
    title="ONI",
    paper="Controllable Orthogonalization in Training DNNs",
    year=2020,
    link="https://arxiv.org/abs/2004.00917",
    guarantee="bounded",
    linear=True,
    conv=ONIConv2d,
    linear_layer=ONILinear,
    learning_rate=0.02,
    training_approximation="polar factors from eigenvectors of float32 Gram matrices",
    published=Complexity(
        input_operations="CONV",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="Newton, MMs",
        parameter_macs="2*c**3*k**2 + 3*c**3*t",
        parameter_memory="2*c**2*k**2 + 3*c**2*t",
    ),
    ours=Complexity(
        input_operations="CONV, or by frequency",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="Newton, MMs, implicit backward",
        parameter_macs="c**3*((k**4 + 11*k**2 + 10)/2)",
        parameter_memory="c**2*(7*k**2/2 - k/2 + 5/4)",
    ),
)
