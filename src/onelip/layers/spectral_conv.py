"""Convolutions that act in the frequency domain, by one matrix per frequency.

With M^(f) of norm at most 1 at every frequency, x -> F^T M F x has norm at most 1, because the real DFT F is
an isometry. Zero padding embeds the image in a torus larger by k - 1, convolves there and crops.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.base import Transformed
from onelip.layers.fused import FusedLayer, frozen_conv
from onelip.layers.shapes import LipschitzConv2d
from onelip.linalg.fourier import (
    RealDFT,
    Size,
    from_frequency,
    multiply_frequencies,
    real_dft,
    split_complex,
    to_frequency,
    torus_matrices,
    torus_of,
)


def torus_size(size: Size, kernel_size: Size, padding_mode: str) -> Size:
    """The torus on which a convolution of this padding acts."""
    if padding_mode == "circular":
        return size
    return size[0] + kernel_size[0] - 1, size[1] + kernel_size[1] - 1


def with_dft(matrices: Tensor, size: Size) -> Transformed:
    """Frequency matrices (..., h, w', o, i) in the layout of the product, with the DFT that they need."""
    split = split_complex(matrices)
    columns, rows = real_dft(size, split.dtype, split.device)
    lead = split.shape[:-4]
    return {
        "matrices": split,
        "dft_columns": columns.expand(*lead, *columns.shape),
        "dft_rows": rows.expand(*lead, *rows.shape),
    }


def spectral_convolution(x: Tensor, transformed: Mapping[str, Tensor]) -> Tensor:
    """x -> F^T M F x on the torus of the transformed parameters; smaller images are embedded and cropped."""
    dft = RealDFT(transformed["dft_columns"], transformed["dft_rows"])
    height, width = x.shape[-2:]
    torus = torus_of(dft)
    x = F.pad(x, (0, torus[1] - width, 0, torus[0] - height)) if torus != (height, width) else x
    y = from_frequency(multiply_frequencies(to_frequency(x, dft), transformed["matrices"]), torus, dft)
    return y[..., :height, :width] if torus != (height, width) else y


def add_bias(y_bchw: Tensor, bias: Tensor | None) -> Tensor:
    """Add one number per channel."""
    return y_bchw if bias is None else y_bchw + bias[:, None, None]


class SpectralConv2d(LipschitzConv2d):
    """A convolution that `constrain` makes 1-Lipschitz at each frequency of the torus alone.

    The transformed parameters are {"matrices", "dft_columns", "dft_rows"}. A 1 x 1 kernel is the same matrix at all
    frequencies, so that it is constrained once and stays a plain convolution {"kernel"}, for every image size.
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
        return with_dft(self.constrain(torus_matrices(kernel, torus)), torus)

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """DFT, one product per frequency, inverse DFT; or a plain 1 x 1 convolution."""
        if "kernel" in transformed:
            return F.conv2d(x, transformed["kernel"], self.bias)
        return add_bias(spectral_convolution(x, transformed), self.bias)

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
        return add_bias(spectral_convolution(x, self.tensors()), self.bias)


def image_size(transformed: Mapping[str, Tensor], margin: Size) -> Size:
    """Size of the images whose torus these parameters belong to, zero padding by margin - 1 included."""
    torus = torus_of(RealDFT(transformed["dft_columns"], transformed["dft_rows"]))
    return torus[0] - margin[0] + 1, torus[1] - margin[1] + 1


def check_size(module: nn.Module, x: Tensor, size: Size) -> None:
    """Frequency matrices belong to one torus; on another image they would be another layer."""
    if (x.shape[-2], x.shape[-1]) != size:
        raise InvalidInputError(
            f"{type(module).__name__} was fused for {size[0]} x {size[1]} images, got {x.shape[-2]} x {x.shape[-1]}"
        )
