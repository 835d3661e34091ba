"""AOL: almost-orthogonal Lipschitz layers (Prach and Lampert, 2022).

W = P D with D_jj = (sum_k |P^T P|_jk)^(-1/2). Then D^(-2) - P^T P is symmetric and diagonally dominant, hence
positive semi-definite, so ||P D x|| <= ||x||. For a convolution P^T P is the autocorrelation of the kernel over
its input channels, and the sum runs over channels and offsets. The bound holds for both paddings and every
image size: wrapping merges offsets, and |a + b| <= |a| + |b|.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from onelip.layers.info import Complexity, MethodInfo, PublishedSetting
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS
from onelip.layers.spatial import KernelConv2d, MatrixLinear
from onelip.layers.transformed import Kernel, Matrix
from onelip.linalg.fourier import Size
from onelip.linalg.rescaling import aol_kernel_scale, aol_scale


class AOLConv2d(KernelConv2d):
    """Convolution with a kernel rescaled per input channel."""

    initialisations = PUBLISHED_INITIALISATIONS

    keeps_directions = True

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Kernel:
        """P D, with D from the autocorrelation of the kernel."""
        kernel = tensors["weight"]
        return Kernel(kernel * aol_kernel_scale(kernel)[..., None, :, None, None], self.padding_mode)


class AOLLinear(MatrixLinear):
    """Linear layer with a matrix rescaled per column."""

    initialisations = PUBLISHED_INITIALISATIONS

    keeps_directions = True

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Matrix:
        """P D."""
        matrix = tensors["weight"]
        return Matrix(matrix * aol_scale(matrix)[..., None, :])


METHOD = MethodInfo(
    key="aol",
    title="AOL",
    paper="Almost-Orthogonal Layers for Efficient General-Purpose Lipschitz Networks",
    year=2022,
    link="https://arxiv.org/abs/2208.03160",
    guarantee="bounded",
    linear=True,
    conv=AOLConv2d,
    linear_layer=AOLLinear,
    learning_rate=0.06,
    setting=PublishedSetting(
        padding_mode="circular",
        start="identity, first and last layer random orthogonal; biases 0",
        ends_init="orthogonal",
        head="a 1 x 1 convolution of the method",
        iterations="none",
        otherwise="the published code adds 1e-6 to the sums by which it divides",
    ),
    published=Complexity(
        input_operations="CONV",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="CONV",
        parameter_macs="c**3*k**4",
        parameter_memory="5*c**2*k**2",
    ),
    ours=Complexity(
        input_operations="CONV, or by frequency",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="MMs on half of the offsets",
        parameter_macs="c**3*(k**4 + k**2)/2",
        parameter_memory="c**2*(k**4 - k**3 + 3*k**2)",
    ),
)
