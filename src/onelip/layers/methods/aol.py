"""AOL: almost-orthogonal Lipschitz layers (Prach and Lampert, 2022).

W = P D with D_jj = (sum_k |P^T P|_jk)^(-1/2). Then D^(-2) - P^T P is symmetric and diagonally dominant, hence
positive semi-definite, so ||P D x|| <= ||x||. For a convolution P^T P is the autocorrelation of the kernel over
its input channels, and the sum runs over channels and offsets. The bound holds for both paddings and every
image size: wrapping merges offsets, and |a + b| <= |a| + |b|.

`steps=t` is spectral rescaling (Delattre et al., 2024; arXiv 2402.00240): with p = 2^(t-1),
D_jj = (sum_k |(P^T P)^p|_jk)^(-1/(2p)), which for t = 1 is AOL. The p-th root is operator monotone, so that the norm is
at most 1 for every t (see `onelip.linalg.spectral_rescaling`), and it comes closer to 1 with every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.layers.contract import Request, Traits
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS
from onelip.layers.kernel_layers import KernelConv2d, MatrixLinear
from onelip.layers.layer import LayerOptions
from onelip.layers.operators import Kernel, Matrix
from onelip.layers.registry import MethodInfo
from onelip.linalg.convolution import PaddingMode
from onelip.linalg.fourier import Size
from onelip.linalg.rescaling import aol_kernel_scale, aol_scale
from onelip.linalg.spectral_rescaling import kernel_rescaling, rescaling

MOST_STEPS = 6
"""Random 3 x 3 kernels of 16 channels have norm 0.99 then, and a further step takes four times the operations."""


TRAITS = Traits(
    initialisations=PUBLISHED_INITIALISATIONS,
    keeps_directions=True,
    holds_for_volumes=True,
    zero_channels_stay_zero=True,
)


class AOLConv2d(KernelConv2d):
    """Convolution with a kernel rescaled per input channel; `steps` more than 1 is spectral rescaling."""

    traits = TRAITS

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Size,
        stride: int | Size = 1,
        padding: str | int | Size = "same",
        dilation: int | Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "circular",
        *,
        steps: int = 1,
        **options: Unpack[LayerOptions],
    ) -> None:
        geometry = kernel_size, stride, padding, dilation, groups
        super().__init__(in_channels, out_channels, *geometry, bias, padding_mode, **options)
        self.steps = checked_steps(steps, type(self).__name__)
        self.gram_power = 2 ** (self.steps - 1)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Kernel:
        """P D, with D from the autocorrelation of the kernel."""
        kernel = tensors["weight"]
        scale = aol_kernel_scale(kernel) if self.steps == 1 else kernel_rescaling(kernel, self.steps)
        return Kernel(kernel * scale[..., None, :, None, None], self.padding_mode)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return super().extra_repr() if self.steps == 1 else f"{super().extra_repr()}, steps={self.steps}"


class AOLLinear(MatrixLinear):
    """Linear layer with a matrix rescaled per column; `steps` more than 1 is spectral rescaling."""

    traits = TRAITS

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        steps: int = 1,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(in_features, out_features, bias, **options)
        self.steps = checked_steps(steps, type(self).__name__)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """P D."""
        matrix = tensors["weight"]
        scale = aol_scale(matrix) if self.steps == 1 else rescaling(matrix, self.steps)
        return Matrix(matrix * scale[..., None, :])

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return super().extra_repr() if self.steps == 1 else f"{super().extra_repr()}, steps={self.steps}"


def checked_steps(steps: int, layer: str) -> int:
    """The number of steps, or an error that names the layer."""
    if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
        raise InvalidInputError(f"{layer}: steps={steps!r} is not supported, use a number from 1 to {MOST_STEPS}")
    return steps


METHOD = MethodInfo(
    key="aol",
    guarantee="bounded",
    conv=AOLConv2d,
    linear_layer=AOLLinear,
    training_approximation="sums of float32 autocorrelations, those of wide 3 x 3 kernels from 18 products",
)
