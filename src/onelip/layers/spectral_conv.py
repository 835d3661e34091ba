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
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.base import Transformed
from onelip.layers.convolution import same_convolution
from onelip.layers.fused import FusedLayer, PaddingMode, frozen_conv
from onelip.layers.shapes import LipschitzConv2d
from onelip.linalg.fourier import (
    RealDFT,
    Size,
    from_frequency,
    half_width,
    is_whole,
    kernel_to_parts,
    multiply_frequencies,
    pack,
    real_dft,
    real_frequencies,
    to_frequency,
    torus_blocks,
    torus_of,
)
from onelip.linalg.layer_bound import LayerBound
from onelip.linalg.linear_bounds import convolution_bound, spectral_bound
from onelip.linalg.proven_convolution import same_convolution_of

WHOLE_SHARE, FREQUENCY_SHARE = 0.7, 0.4
"""A convolution acts on frequencies if that takes less than this share of the operations: measured on CPUs. The first
is for tori that one matrix transforms, from 32 channels on 8 x 8 images on; two matrices cost more memory traffic,
which pays from 128 channels on 16 x 16 images on."""


def torus_size(size: Size, kernel_size: Size, padding_mode: str) -> Size:
    """The torus on which a convolution of this padding acts."""
    if padding_mode == "circular":
        return size
    return size[0] + kernel_size[0] - 1, size[1] + kernel_size[1] - 1


def with_dft(split: Tensor, size: Size) -> Transformed:
    """Frequency matrices in the layout of the product, with the DFT that they need."""
    columns, rows = real_dft(size, split.dtype, split.device)
    lead = split.shape[:-3] if columns is None else split.shape[:-4]
    transformed = {"matrices": split, "dft_rows": rows.expand(*lead, *rows.shape)}
    if columns is not None:
        transformed["dft_columns"] = columns.expand(*lead, *columns.shape)
    return transformed


def spectral_convolution(
    x: Tensor, transformed: Mapping[str, Tensor], bias: Tensor | None = None, *, adjoint: bool = False
) -> Tensor:
    """x -> F^T M F x + b on the torus of the transformed parameters, or its transpose F^T M^H F x.

    Smaller images are embedded in the torus and cropped.
    """
    dft = dft_of(transformed)
    torus = torus_of(dft)
    constant = at_frequency_zero(bias, torus)
    # No name for the frequencies of x: they would stay in memory until the end.
    y = multiply_frequencies(to_frequency(embedded(x, torus), dft), transformed["matrices"], constant, adjoint)
    return from_frequency(y, torus, dft)[..., : x.shape[-2], : x.shape[-1]]


def dft_of(transformed: Mapping[str, Tensor]) -> RealDFT:
    """The DFT among transformed parameters."""
    return RealDFT(transformed.get("dft_columns"), transformed["dft_rows"])


def embedded(x: Tensor, torus: Size) -> Tensor:
    """The image with zeros behind it up to the size of the torus."""
    return F.pad(x, (0, torus[1] - x.shape[-1], 0, torus[0] - x.shape[-2])) if torus != tuple(x.shape[-2:]) else x


def at_frequency_zero(bias: Tensor | None, torus: Size) -> Tensor | None:
    """A constant image b is b sqrt(h w) at the frequency 0, and nothing elsewhere."""
    return None if bias is None else bias * math.sqrt(math.prod(torus))


def convolve(x: Tensor, transformed: Mapping[str, Tensor], bias: Tensor | None, padding_mode: PaddingMode) -> Tensor:
    """The convolution of {"kernel"} or of {"matrices", "dft_rows", ...}."""
    if "kernel" in transformed:
        return same_convolution(x, transformed["kernel"], bias, padding_mode)
    return spectral_convolution(x, transformed, bias)


def conv_bound(layer: LipschitzConv2d, input_shape: tuple[int, ...]) -> LayerBound:
    """Bound of a layer that is `convolve`: channels of zeros and outputs that are cut off take no part."""
    size = input_shape[-2], input_shape[-1]
    transformed, inputs, outputs = layer.deployed(size), layer.used_inputs, layer.out_channels
    if "kernel" in transformed:
        convolution = same_convolution_of(transformed["kernel"][:outputs, :inputs], layer.padding_mode)
        return convolution_bound(convolution, layer.strided(size), layer.used_bias())
    return spectral_bound(transformed["matrices"][..., :inputs, :outputs], dft_of(transformed), layer.used_bias())


class KernelOrFrequencies(LipschitzConv2d):
    """A convolution whose parameters become a kernel, which is applied as such or frequency by frequency.

    On small images with many channels the product per frequency takes far fewer operations: 4 h (w/2 + 1) c^2 in
    place of k^2 h w c^2. The transformed parameters then hold {"matrices", "dft_rows"} and, on large images,
    {"dft_columns"} in place of {"kernel"}.
    """

    def acts_on_frequencies(self, size: Size) -> bool:
        """Whether the frequency domain is cheaper by so much that it is so in time as well."""
        if self.padding_mode != "circular" or self.kernel_size[0] == 1:
            return False
        channels = self.core_in, self.core_out
        share = WHOLE_SHARE if is_whole(size) else FREQUENCY_SHARE
        as_kernel = math.prod(self.kernel_size) * math.prod(size) * math.prod(channels)
        return spectral_operations(size, *channels) < share * as_kernel

    def core_size(self, input_size: Size | None) -> Size | None:
        """The size of the image, where the transformed parameters depend on it."""
        if self.size_dependent:
            return super().core_size(input_size)
        size = None if input_size is None else self.strided(input_size)
        return size if size is not None and self.acts_on_frequencies(size) else None

    def choose_form(self, transformed: Transformed, size: Size | None) -> Transformed:
        """Frequency matrices where they are cheaper."""
        if size is None or not self.acts_on_frequencies(size):
            return transformed
        kernel = transformed.pop("kernel")
        return {**transformed, **with_dft(kernel_to_parts(kernel, size), size)}


def spectral_operations(size: Size, inputs: int, outputs: int) -> int:
    """Multiply-accumulates per image: two real DFTs as matrix products, and a real or complex product per frequency."""
    height, width = size
    if is_whole(size):
        pixels = height * width
        return pixels**2 * (inputs + outputs) + (2 * pixels - real_frequencies(pixels)) * inputs * outputs
    kept = half_width(width)
    transform = 2 * height * kept * width + 4 * height * height * kept
    return transform * (inputs + outputs) + 4 * height * kept * inputs * outputs


class SpectralConv2d(LipschitzConv2d):
    """A convolution that `constrain` makes 1-Lipschitz at each frequency of the torus alone.

    The transformed parameters are {"matrices", "dft_rows"} and, on large images, {"dft_columns"}. A 1 x 1 kernel is the
    same matrix at all frequencies, so that it is constrained once and stays a plain convolution {"kernel"}, for every
    image size.
    """

    @abstractmethod
    def constrain(self, matrices: Tensor) -> Tensor:
        """Real or complex matrices (..., out, in) to matrices of norm at most 1."""

    def unconstrained_kernel(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The kernel whose frequency matrices are constrained."""
        return tensors["weight"]

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight and bias."""
        super().create_parameters(bias, factory)
        self.size_dependent = self.kernel_size[0] > 1

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """The matrices at the frequencies of the torus that belongs to this image size."""
        kernel = self.unconstrained_kernel(tensors)
        if size is None:
            return {"kernel": self.constrain(kernel[..., 0, 0])[..., None, None]}
        torus = torus_size(size, self.kernel_size, self.padding_mode)
        return with_dft(pack(tuple(map(self.constrain, torus_blocks(kernel, torus)))), torus)

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """DFT, one product per frequency, inverse DFT; or a plain 1 x 1 convolution."""
        return convolve(x, transformed, self.bias, self.padding_mode)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the convolution."""
        return conv_bound(self, input_shape)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """The same in the frequency domain, for images of one size; or a plain 1 x 1 convolution."""
        if "kernel" in transformed:
            return frozen_conv(transformed["kernel"], self.bias, self.padding_mode)
        return FusedSpectralConv2d(transformed, self.bias, self.kernel_size if self.padding_mode == "zeros" else (1, 1))


class FusedSpectralConv2d(FusedLayer):
    """A frequency-domain convolution with fixed matrices, for one image size."""

    def __init__(self, transformed: Mapping[str, Tensor], bias: Tensor | None, margin: Size) -> None:
        super().__init__(transformed, bias)
        self.size = image_size(transformed, margin)

    def forward(self, x: Tensor) -> Tensor:
        """DFT, one product per frequency, inverse DFT."""
        check_size(self, x, self.size)
        return spectral_convolution(x, self.tensors(), self.bias)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the frequency matrices."""
        return spectral_bound(self.get_parameter("matrices"), dft_of(self.tensors()), self.bias)


def image_size(transformed: Mapping[str, Tensor], margin: Size) -> Size:
    """Size of the images whose torus these parameters belong to, zero padding by margin - 1 included."""
    torus = torus_of(dft_of(transformed))
    return torus[0] - margin[0] + 1, torus[1] - margin[1] + 1


def check_size(module: nn.Module, x: Tensor, size: Size) -> None:
    """Frequency matrices belong to one torus; on another image they would be another layer."""
    if (x.shape[-2], x.shape[-1]) != size:
        raise InvalidInputError(
            f"{type(module).__name__} was fused for {size[0]} x {size[1]} images, got {x.shape[-2]} x {x.shape[-1]}"
        )
