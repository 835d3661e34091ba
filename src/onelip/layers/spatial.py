"""Layers that are one plain convolution or matrix product after their parameter transformation.

A circular convolution has norm max_f ||K^(f)|| over the frequencies of its torus. A zero-padded one is a
restriction of the circular one on a torus larger by k - 1: embedding and cropping have norm 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.base import Transformed
from onelip.layers.fused import FusedLayer, PaddingMode, frozen_conv, frozen_linear
from onelip.layers.reshape import ZeroSpatialPad
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear
from onelip.linalg.fourier import Size


class _CircularPad(torch.autograd.Function):
    """Periodic padding by at most the image's size; torch's own backward pass takes ten times as long as this one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, pad: int) -> Tensor:
        return F.pad(x, (pad, pad, pad, pad), mode="circular")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        ctx.pad = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _fold(_fold(gradients[0], -2, ctx.pad), -1, ctx.pad), None


def _fold(x: Tensor, dim: int, pad: int) -> Tensor:
    """Adjoint of periodic padding along one dimension: what lies outside is added where it came from."""
    length = x.shape[dim] - 2 * pad
    inner = x.narrow(dim, pad, length).clone()
    inner.narrow(dim, length - pad, pad).add_(x.narrow(dim, 0, pad))
    inner.narrow(dim, 0, pad).add_(x.narrow(dim, pad + length, pad))
    return inner


def circular_pad(x: Tensor, pad: int) -> Tensor:
    """Periodic padding by `pad` on all sides, also where the image is smaller than that."""
    if pad == 0:
        return x
    height, width = x.shape[-2:]
    if pad <= min(height, width):
        return _CircularPad.apply(x, pad)  # pyright: ignore[reportReturnType]
    rows = torch.arange(-pad, height + pad, device=x.device) % height
    columns = torch.arange(-pad, width + pad, device=x.device) % width
    return x.index_select(-2, rows).index_select(-1, columns)


def same_convolution(x: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode) -> Tensor:
    """Convolution with an odd kernel that keeps height and width."""
    pad = kernel.shape[-1] // 2
    if padding_mode == "zeros":
        return F.conv2d(x, kernel, bias, padding=pad)
    return F.conv2d(circular_pad(x, pad), kernel, bias)


def adjoint_kernel(kernel: Tensor) -> Tensor:
    """Kernel of the transposed convolution, for either padding: channels swapped, taps reversed."""
    return kernel.transpose(-4, -3).flip(-2, -1)


class KernelConv2d(LipschitzConv2d):
    """A convolution whose transformed parameters are one kernel {"kernel": (out, in, k, k)}."""

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """One convolution."""
        return same_convolution(x, transformed["kernel"], self.bias, self.padding_mode)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """A convolution of stride 1 that wraps around as often as a small image asks for."""
        return WrappingConv2d(transformed, self.bias)

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """One `nn.Conv2d`, the stride included: unshuffling pixels by s turns k x k taps into (s k) x (s k)."""
        transformed = self._detached(input_size)
        step = self.stride[0]
        taps = transformed["kernel"].unflatten(1, (self.in_channels, step, step))
        kernel = taps.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)
        pad = step * (self.kernel_size[0] // 2)
        if input_size is not None and self.padding_mode == "circular" and pad > min(input_size):
            return super().fuse(input_size)
        conv = frozen_conv(kernel, self.bias, self.padding_mode, stride=step)
        divides = input_size is not None and input_size[0] % step == 0 and input_size[1] % step == 0
        return conv if step == 1 or divides else nn.Sequential(ZeroSpatialPad(step), conv)


class MatrixLinear(LipschitzLinear):
    """A linear layer whose transformed parameters are one matrix {"matrix": (out, in)}."""

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """One matrix product."""
        return F.linear(x, transformed["matrix"], self.bias)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """A plain linear layer."""
        return frozen_linear(transformed["matrix"], self.bias)


class WrappingConv2d(FusedLayer):
    """A circular convolution for images smaller than its padding, which `nn.Conv2d` refuses."""

    def forward(self, x: Tensor) -> Tensor:
        """One convolution."""
        return same_convolution(x, self.get_parameter("kernel"), self.bias, "circular")
