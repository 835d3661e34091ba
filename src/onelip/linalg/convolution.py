"""Convolutions that keep height and width.

What is padded in a circle is copied from the other end, pixel by pixel. `onelip.fast.channels_last` has the same in the
layout that CPUs want, with gradients that do not go through the padding.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.linalg.constants import cached_constant
from onelip.linalg.definition import Definition
from onelip.linalg.fourier import Size

PaddingMode = Literal["circular", "zeros"]


def adjoint_kernel(kernel: Tensor) -> Tensor:
    """Kernel of the transposed convolution, for either padding: channels swapped, taps reversed."""
    return kernel.transpose(-4, -3).flip(-2, -1)


@Definition
def same_convolution(
    x: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode, dilation: Size = (1, 1)
) -> Tensor:
    """Convolution with an odd kernel that keeps height and width."""
    padded, zeros = padded_image(x, kernel, padding_mode, dilation), zero_padding(kernel, padding_mode, dilation)
    return F.conv2d(padded, kernel, bias, padding=zeros, dilation=dilation)


@Definition
def grouped_convolution(x: Tensor, kernels: Tensor, bias: Tensor | None, padding_mode: PaddingMode) -> Tensor:
    """`same_convolution` with a kernel (groups, out, in, kh, kw) for each group of channels."""
    kernel = kernels.flatten(0, 1)
    padded, zeros = padded_image(x, kernel, padding_mode), zero_padding(kernel, padding_mode)
    return F.conv2d(padded, kernel, bias, padding=zeros, groups=len(kernels))


@Definition
def residual_convolution(x: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode) -> Tensor:
    """x - W^T relu(W x + b) with a convolution W."""
    hidden = F.relu(same_convolution.body(x, kernel, bias, padding_mode))
    return x - same_convolution.body(hidden, adjoint_kernel(kernel), None, padding_mode)


def circular_pad(x: Tensor, pad: Size) -> Tensor:
    """Periodic padding of both ends of rows and columns, also where the image is smaller than that, in its layout."""
    if pad == (0, 0):
        return x
    height, width = x.shape[-2:]

    def make(device: torch.device) -> Tensor:
        rows = torch.arange(-pad[0], height + pad[0], device=device) % height
        columns = torch.arange(-pad[1], width + pad[1], device=device) % width
        return (rows[:, None] * width + columns).flatten()

    places = cached_constant(("padding", (height, width), pad), x.device, make)
    padded = height + 2 * pad[0], width + 2 * pad[1]
    if x.stride(1) == 1:
        return x.permute(0, 2, 3, 1).flatten(1, 2).index_select(1, places).unflatten(1, padded).permute(0, 3, 1, 2)
    return x.flatten(2).index_select(2, places).unflatten(2, padded)


def reach(kernel: Tensor, dilation: Size = (1, 1)) -> Size:
    """How far the taps reach from the middle of the kernel."""
    return kernel.shape[-2] // 2 * dilation[0], kernel.shape[-1] // 2 * dilation[1]


def padded_image(x: Tensor, kernel: Tensor, padding_mode: PaddingMode, dilation: Size = (1, 1)) -> Tensor:
    """The image with what a circle adds; zeros are left to torch's convolution, which takes `zero_padding` of them."""
    return circular_pad(x, reach(kernel, dilation)) if padding_mode == "circular" else x


def zero_padding(kernel: Tensor, padding_mode: PaddingMode, dilation: Size = (1, 1)) -> Size:
    """Zeros for torch's convolution to add."""
    return reach(kernel, dilation) if padding_mode == "zeros" else (0, 0)


def strided_convolution(
    x: Tensor,
    taps: Tensor,
    bias: Tensor | None,
    stride: Size,
    front: Size,
    counts: Size,
    *,
    circular: bool,
    groups: int = 1,
) -> Tensor:
    """`counts` outputs of a convolution with these taps, the first of which reads from `front` pixels before x on."""
    needed = [s * (count - 1) + k for s, count, k in zip(stride, counts, taps.shape[-2:], strict=True)]
    behind = [n - f - length for n, f, length in zip(needed, front, x.shape[-2:], strict=True)]
    sides = (front[1], max(behind[1], 0), front[0], max(behind[0], 0))
    if circular:
        for dim, before, after in ((-2, *sides[2:]), (-1, *sides[:2])):
            x = _continued(x, dim, before, after)
    elif any(sides):
        x = F.pad(x, sides)
    return F.conv2d(x, taps, bias, stride, groups=groups)[..., : counts[0], : counts[1]]


def _continued(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    """The image on a circle with so many pixels more on either side."""
    if before == 0 and after == 0:
        return x
    places = torch.arange(-before, x.shape[dim] + after, device=x.device).remainder(x.shape[dim])
    return x.index_select(dim, places)
