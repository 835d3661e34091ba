"""Layers that are one plain convolution or matrix product after their parameter transformation.

A circular convolution has norm max_f ||K^(f)|| over the frequencies of its torus. A zero-padded one is a
restriction of the circular one on a torus larger by k - 1: embedding and cropping have norm 1.
"""

from __future__ import annotations

from torch import nn

from onelip.layers.frequency_conv import CheapestFormConv2d
from onelip.layers.fused import frozen_conv, frozen_linear
from onelip.layers.geometry import Geometry
from onelip.layers.reshape import ZeroSpatialPad
from onelip.layers.shapes import LipschitzLinear
from onelip.layers.transformed import Kernel, Matrix, Transformed
from onelip.linalg.fourier import Size


class KernelConv2d(CheapestFormConv2d):
    """A convolution that `transform_tensors` makes one `Kernel` of."""

    fuses_cheapest_form = False  # to a plain convolution, which needs the kernel

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """One `nn.Conv2d`, the stride included: unshuffling pixels by s turns k x k taps into (s k) x (s k).

        A circular convolution on images smaller than its padding, which `nn.Conv2d` refuses, stays one of ours.
        """
        step, geometry = self.stride[0], self.geometry
        simple = geometry == Geometry(self.kernel_size, (step, step), None, self.dilation, geometry.circular)
        combined = step > 1 and (self.groups > 1 or self.dilation != (1, 1))
        if self.signal or not simple or combined or not self._fits(input_size):
            return super().fuse(input_size)
        transformed = self._detached(input_size)
        if step == 1:
            kernel = transformed.tensors()["kernel"]
            kernel = kernel.flatten(0, 1) if self.groups > 1 else kernel
            return frozen_conv(kernel, self.bias, self.padding_mode, dilation=self.dilation, groups=self.groups)
        assert isinstance(transformed, Kernel)
        taps = transformed.kernel.unflatten(1, (self.in_channels, step, step))
        kernel = taps.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)
        conv = frozen_conv(kernel, self.bias, self.padding_mode, stride=step)
        divides = input_size is not None and input_size[0] % step == 0 and input_size[1] % step == 0
        return conv if divides else nn.Sequential(ZeroSpatialPad(step), conv)

    def _fits(self, input_size: Size | None) -> bool:
        """Whether `nn.Conv2d` accepts the image: its circular padding must not exceed the size."""
        if input_size is None or self.padding_mode == "zeros":
            return True
        reach = (k // 2 * s * d for k, s, d in zip(self.core_kernel, self.stride, self.dilation, strict=True))
        return all(pad <= length for pad, length in zip(reach, input_size, strict=True))


class MatrixLinear(LipschitzLinear):
    """A linear layer that `transform_tensors` makes one `Matrix` of."""

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """A plain linear layer."""
        assert isinstance(transformed, Matrix)
        return frozen_linear(transformed.matrix, self.bias)
