"""Convolutions that act in the frequency domain, by one matrix per frequency.

With M^(f) of norm at most 1 at every frequency, x -> F^T M F x has norm at most 1, because the real DFT F is
an isometry. Zero padding embeds the image in a torus larger by k - 1, convolves there and crops.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from onelip.layers.fft_products import FourierProduct, half_spectrum, parts_of, trains_by_fft
from onelip.layers.fused import frozen_conv
from onelip.layers.recomputed_products import RecomputedProduct, keeps_no_matrices
from onelip.layers.shapes import LipschitzConv2d
from onelip.layers.transformed import Kernel, Transformed, frequencies
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.fourier import Size, half_width, has_one_matrix, pack, real_frequencies, torus_blocks
from onelip.linalg.thresholds import thresholds


def torus_size(size: Size, kernel_size: Size, padding_mode: str) -> Size:
    """The torus on which a convolution of this padding acts."""
    if padding_mode == "circular":
        return size
    return size[0] + kernel_size[0] - 1, size[1] + kernel_size[1] - 1


def recomputes(layer: LipschitzConv2d, size: Size | None) -> bool:
    """Whether a layer that acts on frequencies of this core size has no matrices in training."""
    return size is not None and trains_by_fft(layer.training, layer.weight.device) and is_wide(layer, size)


def is_wide(layer: LipschitzConv2d, size: Size) -> bool:
    """Whether the matrices of a layer that acts on frequencies of this core size are too many to be kept."""
    torus = torus_size(size, layer.core_kernel, layer.padding_mode)
    return keeps_no_matrices((layer.core_out, layer.core_in), layer.weight.element_size(), torus)


class CheapestFormConv2d(LipschitzConv2d):
    """A convolution whose parameters become a kernel, which is applied as such or frequency by frequency.

    On small images with many channels the product per frequency takes far fewer operations: 4 h (w/2 + 1) c^2 in
    place of k^2 h w c^2. `transform_tensors` returns the operator with a kernel.
    """

    def acts_on_frequencies(self, size: Size) -> bool:
        """Whether the frequency domain is cheaper by so much that it is so in time as well."""
        taps = self.core_kernel
        if self.padding_mode != "circular" or taps == (1, 1) or self.groups > 1:
            return False
        if not suits_cpu(self.weight.device):  # convolution libraries of accelerators are fast at k x k taps
            return False
        channels = self.core_in, self.core_out
        share = thresholds().whole_share if has_one_matrix(size) else thresholds().frequency_share
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

    def choose_form(self, transformed: Transformed, size: Size | None) -> Transformed:
        """Frequency matrices where they are cheaper."""
        return transformed if size is None or not self.acts_on_frequencies(size) else transformed.by_frequency(size)


def spectral_operations(size: Size, inputs: int, outputs: int) -> int:
    """Multiply-accumulates per image: two real DFTs as matrix products, and a real or complex product per frequency."""
    height, width = size
    if has_one_matrix(size):
        pixels = height * width
        return pixels**2 * (inputs + outputs) + (2 * pixels - real_frequencies(pixels)) * inputs * outputs
    kept = half_width(width)
    rows = 4 * height * height * kept
    transform = 2 * height * kept * width + (rows if height % 2 else rows // 2)  # see `onelip.linalg.halved_product`
    return transform * (inputs + outputs) + 4 * height * kept * inputs * outputs


class FrequencyConv2d(LipschitzConv2d):
    """A convolution that `constrain` makes 1-Lipschitz at each frequency of the torus alone.

    The transformed parameters are `Frequencies`. A 1 x 1 kernel is the same matrix at all frequencies, so that it is
    constrained once and stays a plain convolution, a `Kernel` for every image size.
    """

    @abstractmethod
    def constrain(self, matrices: Tensor) -> Tensor:
        """Real or complex matrices (..., out, in) to matrices of norm at most 1."""

    def packed_matrices(self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """`pack` of the constrained matrices in training on CPUs, if there is a way to them that keeps little."""
        return None

    def unconstrained_kernel(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The kernel whose frequency matrices are constrained."""
        return tensors["weight"]

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight and bias."""
        super().create_parameters(bias, factory)
        self.size_dependent = self.core_kernel != (1, 1)

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """The matrices at the frequencies of the torus that belongs to this image size."""
        kernel = self.unconstrained_kernel(tensors)
        # A 1 x 1 kernel has the one frequency of one pixel.
        torus = (1, 1) if size is None else torus_size(size, self.core_kernel, self.padding_mode)
        packed = self.packed_matrices(kernel, torus, tensors) if suits_cpu(kernel.device) else None
        if size is None:
            matrix = self.constrain(kernel[..., 0, 0]) if packed is None else packed.squeeze(-3).mT
            return Kernel(matrix[..., None, None], self.padding_mode)
        if trains_by_fft(self.training, kernel.device):
            if recomputes(self, size):
                return RecomputedProduct(kernel, torus, size, self._constrain_in_training)
            return FourierProduct(parts_of(self.constrain(half_spectrum(kernel, torus))), torus, size)
        if packed is None:
            packed = pack(tuple(map(self.constrain, torus_blocks(kernel, torus))))
        return frequencies(packed, torus, size)

    def _constrain_in_training(self, matrices: Tensor) -> Tensor:
        with self.in_mode(True):  # a backward pass may come when the layer evaluates again
            return self.constrain(matrices)

    def transforms_alone(self, size: Size | None) -> bool:
        """Also wide layers in training on accelerators, which make their matrices as they apply them."""
        return recomputes(self, size) or super().transforms_alone(size)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """A plain 1 x 1 convolution, or the same in the frequency domain, for images of one size."""
        if isinstance(transformed, Kernel):
            return frozen_conv(transformed.kernel, self.bias, self.padding_mode)
        return super().fuse_core(transformed, size)
