"""Layers that are one plain convolution or matrix product after their parameter transformation.

A circular convolution has norm max_f ||K^(f)|| over the frequencies of its torus. A zero-padded one is a
restriction of the circular one on a torus larger by k - 1: embedding and cropping have norm 1.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.base import Transformed
from onelip.layers.convolution import same_convolution
from onelip.layers.fused import FusedLayer, frozen_conv, frozen_linear
from onelip.layers.reshape import ZeroSpatialPad
from onelip.layers.shapes import LipschitzLinear
from onelip.layers.spectral_conv import KernelOrFrequencies, conv_bound, convolve
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound
from onelip.linalg.linear_bounds import convolution_bound, matrix_bound
from onelip.linalg.proven_convolution import same_convolution_of


class KernelConv2d(KernelOrFrequencies):
    """A convolution that `transform_tensors` makes one kernel {"kernel": (out, in, k, k)} of."""

    fuses_cheapest_form = False  # to a plain convolution, which needs the kernel

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """One convolution."""
        return convolve(x, transformed, self.bias, self.padding_mode)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the convolution, by its kernel or by its frequencies."""
        return conv_bound(self, input_shape)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """A convolution of stride 1 that wraps around as often as a small image asks for."""
        return WrappingConv2d(transformed, self.bias)

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """One `nn.Conv2d`, the stride included: unshuffling pixels by s turns k x k taps into (s k) x (s k)."""
        step = self.stride[0]
        pad = step * (self.kernel_size[0] // 2)
        if input_size is not None and self.padding_mode == "circular" and pad > min(input_size):
            return super().fuse(input_size)
        taps = self._detached(input_size)["kernel"].unflatten(1, (self.in_channels, step, step))
        kernel = taps.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)
        conv = frozen_conv(kernel, self.bias, self.padding_mode, stride=step)
        divides = input_size is not None and input_size[0] % step == 0 and input_size[1] % step == 0
        return conv if step == 1 or divides else nn.Sequential(ZeroSpatialPad(step), conv)


class MatrixLinear(LipschitzLinear):
    """A linear layer whose transformed parameters are one matrix {"matrix": (out, in)}."""

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """One matrix product."""
        return F.linear(x, transformed["matrix"], self.bias)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the matrix, without zero features that are appended and outputs that are cut off."""
        matrix = self.deployed()["matrix"][: self.out_features, : self.in_features]
        return matrix_bound(matrix, self.used_bias(), math.prod(input_shape[:-1]))

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """A plain linear layer."""
        return frozen_linear(transformed["matrix"], self.bias)


class WrappingConv2d(FusedLayer):
    """A circular convolution for images smaller than its padding, which `nn.Conv2d` refuses."""

    def forward(self, x: Tensor) -> Tensor:
        """One convolution."""
        return same_convolution(x, self.get_parameter("kernel"), self.bias, "circular")

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the convolution."""
        convolution = same_convolution_of(self.get_parameter("kernel"), "circular")
        return convolution_bound(convolution, (input_shape[-2], input_shape[-1]), self.bias)
