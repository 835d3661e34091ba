"""ECO: explicitly constructed orthogonal convolutions (Yu et al., 2022), repaired for every image size.

Orthogonal matrices at the k x k frequencies of a k x k torus belong to a kernel K of k x k taps. On a torus of
n = k d pixels, the convolution with K *dilated by d* has exactly these matrices, each d times, at its frequencies:
it is orthogonal. (It mixes the k pixels p, p + d, p + 2d, ... of each residue class modulo d, a torus of its own,
which is how it is computed here.) Where k does not divide n that fails, and the original has norms of 1.7; here the
image is embedded in the next larger torus that k divides and the result is cropped, which is 1-Lipschitz always.
With zero padding the torus is so large that nothing which is kept wraps around.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from onelip.layers.contract import Request, Traits
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.fft_products import half_spectrum, spectrum_to_kernel, trains_by_fft
from onelip.layers.fused import frozen_conv
from onelip.layers.kernel_layers import PolarLinear
from onelip.layers.operators import (
    Frequencies,
    Operator,
    TrainingOperator,
    embedded,
    frequencies,
    register_operator_bound,
)
from onelip.layers.registry import MethodInfo
from onelip.linalg.convolution import PaddingMode, same_convolution
from onelip.linalg.fourier import Size, pack, packed_to_kernel, torus_blocks
from onelip.linalg.polar import training_polar_factor
from onelip.proofs.layer_bound import LayerBound
from onelip.proofs.linear_bounds import spectral_bound
from onelip.proofs.measured_rounding import for_prepared_input


def dilation_on(size: Size, sides: Size, padding_mode: PaddingMode) -> Size:
    """Dilation d of the k x k kernel, on a torus of k d pixels a side.

    Circular: the smallest torus for n pixels, d = ceil(n / k). Zero padding: n + d (k // 2) pixels, so that a kernel
    that reaches d (k // 2) pixels far finds zeros there, hence d = ceil(n / ((k + 1) / 2)).
    """
    shares = sides if padding_mode == "circular" else ((sides[0] + 1) // 2, (sides[1] + 1) // 2)
    return -(-size[0] // shares[0]), -(-size[1] // shares[1])


@dataclass(frozen=True)
class DilatedFrequencies(Operator):
    """The k x k convolution on every residue class of pixels modulo its dilation, for every image size."""

    linear_in = "matrices"

    core: Frequencies
    padding_mode: PaddingMode

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """One copy puts the classes in the layout of the DFT, (k, k, classes, channels), and one brings them back."""
        batch, channels, height, width = x.shape
        high, wide = self.core.image
        rows, columns = dilation_on((height, width), self.core.image, self.padding_mode)
        x = embedded(x, (high * rows, wide * columns))
        x = x.reshape(batch, channels, high, rows, wide, columns)
        classes = x.permute(2, 4, 0, 3, 5, 1).reshape(high, wide, -1, channels).permute(2, 3, 0, 1)
        y = self.core.apply(classes, bias)
        y = y.unflatten(0, (batch, rows, columns)).permute(0, 4, 1, 5, 2, 3)
        return y.flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)[..., :height, :width]


@register_operator_bound(DilatedFrequencies)
def dilated_bound(operator: DilatedFrequencies, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
    """The bound of the k x k matrices, on each residue class; rounding is measured where there is only one."""
    core = operator.core
    classes = math.prod(dilation_on((input_shape[-2], input_shape[-1]), core.image, operator.padding_mode))
    return for_prepared_input(lambda x: embedded(x, core.image), spectral_bound(core.matrices, core.dft, bias, classes))


@dataclass(frozen=True)
class DilatedKernel(TrainingOperator):
    """One dilated convolution in place of the matrices, which is faster on accelerators: the operator of training."""

    linear_in = "kernel"

    kernel: Tensor
    padding_mode: PaddingMode

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """On the torus that the image is embedded in, with its ends appended."""
        sides = self.kernel.shape[-2], self.kernel.shape[-1]
        rows, columns = dilation_on((x.shape[-2], x.shape[-1]), sides, self.padding_mode)
        torus = embedded(x, (sides[0] * rows, sides[1] * columns))
        y = same_convolution(torus, self.kernel, bias, "circular", (rows, columns))
        return y[..., : x.shape[-2], : x.shape[-1]]


TRAITS = Traits(orthogonal_by_rank=True, zero_channels_stay_zero=True)


class ECOConv2d(LipschitzConv2d):
    """Dilated convolution with orthogonal frequency matrices, whose kernel spans the whole torus."""

    traits = TRAITS

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """Polar factors at the k x k frequencies."""
        if trains_by_fft(request.training, tensors["weight"].device):
            matrices = training_polar_factor(half_spectrum(tensors["weight"], self.core_kernel), request.approximate)
            return DilatedKernel(spectrum_to_kernel(matrices, self.core_kernel), self.padding_mode)
        blocks = torus_blocks(tensors["weight"], self.core_kernel)
        factors = tuple(training_polar_factor(block, request.approximate) for block in blocks)
        return DilatedFrequencies(frequencies(pack(factors), self.core_kernel), self.padding_mode)

    def fuse_core(self, operator: Operator, size: Size | None) -> nn.Module:
        """A plain dilated convolution where the size is told and, if circular, k divides it; else the same as here."""
        sides = self.core_kernel
        if size is None or (self.padding_mode == "circular" and (size[0] % sides[0] or size[1] % sides[1])):
            return super().fuse_core(operator, size)
        assert isinstance(operator, DilatedFrequencies)
        kernel = packed_to_kernel(operator.core.matrices, sides)
        dilation = dilation_on(size, sides, self.padding_mode)
        return frozen_conv(kernel, self.bias, self.padding_mode, dilation=dilation)


class ECOLinear(PolarLinear):
    """Linear layer with the polar factor of its matrix: a 1 x 1 ECO convolution."""


METHOD = MethodInfo(
    key="eco",
    guarantee="orthogonal",
    conv=ECOConv2d,
    linear_layer=ECOLinear,
    training_approximation="polar factors from eigenvectors of float32 Gram matrices",
    training_error=3e-4,
)
