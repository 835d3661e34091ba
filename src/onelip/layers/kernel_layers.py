"""Layers that are one plain convolution or matrix product after their parameter transformation.

A circular convolution has norm max_f ||K^(f)|| over the frequencies of its torus. A zero-padded one is a
restriction of the circular one on a torus larger by k - 1: embedding and cropping have norm 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, nn

from onelip.layers.blocks.reshape import ZeroSpatialPad
from onelip.layers.contract import Request
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.fused import frozen_conv, frozen_linear
from onelip.layers.linear import LipschitzLinear
from onelip.layers.operators import FirstRows, Matrix, Operator
from onelip.linalg.block_taps import taps_of_blocks
from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import Size, half_width, has_one_matrix, real_frequencies
from onelip.linalg.polar import polar_rows, training_polar_factor, trains_in_single

WHOLE_SHARE = 0.7
"""A convolution on a torus that one matrix transforms (up to 8 x 8) acts on frequencies if that takes less than this
share of its operations: from 32 channels on 8 x 8 images on, measured on a Xeon and an EPYC."""

FREQUENCY_SHARE = 0.35
"""`WHOLE_SHARE` for other tori, of two matrices and more memory traffic: from 128 channels on 16 x 16 images on."""


class KernelOrFrequencyConv2d(LipschitzConv2d):
    """A convolution whose parameters become a kernel, which is applied as such or frequency by frequency.

    On small images with many channels the product per frequency takes far fewer operations: 4 h (w/2 + 1) c^2 in
    place of k^2 h w c^2. `transform_tensors` returns the operator with a kernel.
    """

    def acts_on_frequencies(self, size: Size) -> bool:
        """Whether the frequency domain is cheaper by so much that it is so in time as well."""
        taps = self.core_kernel
        if self.padding_mode != "circular" or taps == (1, 1) or self.groups > 1:
            return False
        if not is_cpu(self.weight.device):  # convolution libraries of accelerators are fast at k x k taps
            return False
        channels = self.core_in, self.core_out
        share = WHOLE_SHARE if has_one_matrix(size) else FREQUENCY_SHARE
        as_kernel = math.prod((*taps, *size, *channels))
        if self.stride != (1, 1) and not self.geometry.transposed and self.keeps_taps:  # applied as torch does it
            as_kernel = math.prod(self.kernel_size) * math.prod(size) * self.in_channels * self.out_channels
        return spectral_operations(size, *channels) < share * as_kernel

    def core_size(self, input_size: Size | None) -> Size | None:
        """The size of the image, where the transformed parameters depend on it."""
        if self.size_dependent:
            return super().core_size(input_size)
        size = None if input_size is None else self.geometry.core_image(input_size)
        return size if size is not None and self.acts_on_frequencies(size) else None

    def choose_form(self, transformed: Operator, request: Request) -> Operator:
        """Frequency matrices where they are cheaper."""
        size = request.size
        return transformed if size is None or not self.acts_on_frequencies(size) else transformed.by_frequency(size)


def spectral_operations(size: Size, inputs: int, outputs: int) -> int:
    """Multiply-accumulates per image: two real DFTs as matrix products, and a real or complex product per frequency."""
    height, width = size
    if has_one_matrix(size):
        pixels = height * width
        return pixels**2 * (inputs + outputs) + (2 * pixels - real_frequencies(pixels)) * inputs * outputs
    kept = half_width(width)
    rows = 4 * height * height * kept
    transform = 2 * height * kept * width + (rows if height % 2 else rows // 2)  # see `onelip.fast.halved_product`
    return transform * (inputs + outputs) + 4 * height * kept * inputs * outputs


class KernelConv2d(KernelOrFrequencyConv2d):
    """A convolution that `transform_tensors` makes one `Kernel` of."""

    keeps_taps = True

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """One `nn.Conv2d`, stride and groups included.

        What `nn.Conv2d` refuses stays one of ours, such as a circle smaller than its padding. So does a strided kernel
        that was normalised on the torus of its zero-padded blocks: as one of torch it is proven on another torus.
        """
        geometry, stride = self.geometry, self.stride
        divides = input_size is not None and input_size[0] % stride[0] == 0 and input_size[1] % stride[1] == 0
        plain = geometry.padding is None and (stride == (1, 1) or (stride[0] == stride[1] and self.dilation == (1, 1)))
        other_torus = self.size_dependent and stride != (1, 1) and not geometry.circular
        if self.signal or geometry.transposed or not plain or other_torus or not self._fits(input_size):
            return super().fuse(input_size)
        kernel = self._detached(input_size).tensors()["kernel"]
        if stride != (1, 1):
            high, wide = geometry.core_sides
            kernel = taps_of_blocks(kernel[..., -high:, -wide:], self.kernel_size, stride, (1, 1))
        kernel = kernel.flatten(0, 1) if self.groups > 1 else kernel
        options = {"stride": stride, "dilation": self.dilation, "groups": self.groups}
        conv = frozen_conv(kernel, self.bias, self.padding_mode, **options)
        return conv if divides or stride == (1, 1) else nn.Sequential(ZeroSpatialPad(stride[0]), conv)

    def _detached(self, input_size: Size | None, *, cheapest_form: bool = False) -> Operator:
        """The kernel, which a plain convolution needs."""
        return super()._detached(input_size, cheapest_form=cheapest_form)

    def _fits(self, input_size: Size | None) -> bool:
        """Whether `nn.Conv2d` accepts the image: its circular padding must not exceed the size."""
        if input_size is None or self.padding_mode == "zeros":
            return True
        reach = ((k - 1) // 2 * d for k, d in zip(self.kernel_size, self.dilation, strict=True))
        return all(pad <= length for pad, length in zip(reach, input_size, strict=True))


class MatrixLinear(LipschitzLinear):
    """A linear layer that `transform_tensors` makes one `Matrix` of."""

    def choose_form(self, transformed: Operator, request: Request) -> Operator:
        """The first rows alone, where no others are asked for."""
        assert isinstance(transformed, Matrix)
        if request.rows is None:
            return transformed
        return FirstRows(transformed.matrix[..., : request.rows, :], state=transformed.state)

    def fuse_core(self, transformed: Operator, size: Size | None) -> nn.Module:
        """A plain linear layer."""
        assert isinstance(transformed, Matrix)
        return frozen_linear(transformed.matrix, self.bias)


class PolarLinear(MatrixLinear):
    """A linear layer with the polar factor of its matrix."""

    def orthonormal(self, matrix: Tensor, request: Request) -> Tensor:
        """The polar factor, or the rows of it that are asked for, where training finds them faster."""
        rows = request.rows
        if rows is None or matrix.shape[-2] != matrix.shape[-1] or not trains_in_single(matrix, request.approximate):
            return training_polar_factor(matrix, request.approximate)
        return polar_rows(matrix, rows)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """Polar factor."""
        return Matrix(self.orthonormal(tensors["weight"], request))
