"""Convolutions in the layout of CPUs, with gradients that do not go through the padding.

On CPUs the channels of a pixel lie side by side (torch's channels_last): padding then copies whole pixels, and the
convolution itself takes two thirds of the time. Elsewhere the layout is the caller's. The gradient with respect to
the input is the convolution of the gradient with the adjoint kernel, on images of the same size: differentiating
through the padding, as autograd does, computes (n + 2)^2 pixels and then folds them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.fast.table import Row
from onelip.linalg.convolution import (
    PaddingMode,
    adjoint_kernel,
    circular_pad,
    grouped_convolution,
    reach,
    residual_convolution,
    same_convolution,
    zero_padding,
)
from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import Size
from onelip.linalg.tensor_modes import run


def convolution_of_pixels(
    x: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode, dilation: Size = (1, 1)
) -> Tensor:
    """Convolution with an odd kernel that keeps height and width."""
    x, kernel, bias = _autocast(x, kernel, bias)
    return run(_SameConvolution, _laid_out(x), kernel, bias, padding_mode, dilation)


def residual_of_few_images(x: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode) -> Tensor:
    """x - W^T relu(W x + b) with a convolution W."""
    x, kernel, bias = _autocast(x, kernel, bias)
    x = _laid_out(x)
    if torch.is_grad_enabled():
        return _ResidualConvolution.apply(x, kernel, bias, padding_mode)  # pyright: ignore[reportReturnType]
    hidden = _convolve(x, kernel, bias, padding_mode)
    if is_cpu(x.device):  # nobody keeps the activation: it is written into the padded image at once
        padded = _padded(hidden, kernel, padding_mode, relu=True)
        branch = _convolve_padded(padded, adjoint_kernel(kernel), None, padding_mode)
    else:
        branch = _convolve_adjoint(hidden.relu_(), kernel, padding_mode)
    return torch.sub(x, branch, out=branch)


def keeps_activation(image: Size) -> bool:
    """Whether a residual layer keeps its activation where computing it again is cheap: on images of up to 4 x 4.

    Each block of a network halves the memory of an image. Those from 8 x 8 on are nine tenths of it.
    """
    return image[0] * image[1] <= 16


def grouped_by_pixels(x: Tensor, kernels: Tensor, bias: Tensor | None, padding_mode: PaddingMode) -> Tensor:
    """`same_convolution` with a kernel (groups, out, in, kh, kw) for each group of channels."""
    kernel = kernels.flatten(0, 1)
    padded, zeros = _padded(_laid_out(x), kernel, padding_mode), zero_padding(kernel, padding_mode)
    return F.conv2d(padded, kernel, bias, padding=zeros, groups=len(kernels))


def _laid_out(x: Tensor) -> Tensor:
    """The image as CPUs want it, on other devices as it is; so it is on meta tensors, which lose the layout."""
    return x if x.is_meta or not is_cpu(x.device) else x.contiguous(memory_format=torch.channels_last)


def _padded(
    x: Tensor, kernel: Tensor, padding_mode: PaddingMode, dilation: Size = (1, 1), relu: bool = False
) -> Tensor:
    """The image, or relu of it, with what a circle adds: in place where nothing is added, else in one pass over it."""
    pad = reach(kernel, dilation)
    if padding_mode != "circular" or pad == (0, 0):
        return x.relu_() if relu else x
    if not _has_room(x, pad):
        return circular_pad(x.relu_() if relu else x, pad)
    (high, wide), (batch, channels, height, width) = pad, x.shape
    padded = x.new_empty(batch, height + 2 * high, width + 2 * wide, channels).permute(0, 3, 1, 2)
    inside = padded[:, :, high : high + height, wide : wide + width]
    torch.clamp_min(x, 0, out=inside) if relu else inside.copy_(x)
    _copy_ends(padded, pad)
    return padded


def _has_room(x: Tensor, pad: Size) -> bool:
    """Whether whole pixels can be copied, and each end of the image has as many of them as are to be padded."""
    channels_first = x.stride(1) != 1 and not (x.is_meta and is_cpu(x.device))  # meta stands for a CPU's layout
    return not channels_first and pad[0] <= x.shape[-2] and pad[1] <= x.shape[-1]


def _copy_ends(padded: Tensor, pad: Size) -> None:
    """Fill the frame of an image from its other ends."""
    (high, wide), (height, width) = pad, (padded.shape[-2] - 2 * pad[0], padded.shape[-1] - 2 * pad[1])
    rows = padded[:, :, high : high + height]
    rows[..., :wide] = rows[..., width : width + wide]
    rows[..., wide + width :] = rows[..., wide : 2 * wide]
    padded[:, :, :high] = padded[:, :, height : height + high]
    padded[:, :, high + height :] = padded[:, :, high : 2 * high]


def _autocast(x: Tensor, kernel: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """In the type of autocast, where it is on: inside an autograd function it would only reach the forward pass."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return x, kernel, bias
    dtype = torch.get_autocast_dtype(device)
    return x.to(dtype), kernel.to(dtype), None if bias is None else bias.to(dtype)


def _convolve(
    x: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode, dilation: Size = (1, 1)
) -> Tensor:
    return _convolve_padded(_padded(x, kernel, padding_mode, dilation), kernel, bias, padding_mode, dilation)


def _convolve_padded(
    padded: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode, dilation: Size = (1, 1)
) -> Tensor:
    return F.conv2d(padded, kernel, bias, padding=zero_padding(kernel, padding_mode, dilation), dilation=dilation)


def _convolve_adjoint(x: Tensor, kernel: Tensor, padding_mode: PaddingMode, dilation: Size = (1, 1)) -> Tensor:
    """The transposed convolution W^T x.

    On CPUs a convolution with the adjoint kernel. Convolution libraries of accelerators transpose without a copy of
    it: what goes to the padding of a circle is cut off again, since the other end of the padded image brings it too.
    """
    if is_cpu(x.device):
        return _convolve(x, adjoint_kernel(kernel), None, padding_mode, dilation)
    padded, (high, wide) = _padded(x, kernel, padding_mode, dilation), reach(kernel, dilation)
    cut = (high, wide) if padding_mode == "zeros" else (2 * high, 2 * wide)
    return F.conv_transpose2d(padded, kernel, padding=cut, dilation=dilation)


def _kernel_gradient(
    padded: Tensor, gradient: Tensor, kernel: Tensor, padding_mode: PaddingMode, dilation: Size = (1, 1)
) -> Tensor:
    """Gradient of <gradient, K * x> with respect to the kernel K, for the `_padded` x."""
    zeros = list(zero_padding(kernel, padding_mode, dilation))
    options = None, [1, 1], zeros, list(dilation), False, [0, 0], 1, [False, True, False]
    return torch.ops.aten.convolution_backward(gradient, padded, kernel, *options)[1]


class _SameConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode, dilation: Size
    ) -> Tensor:
        ctx.save_for_backward(x, kernel)
        ctx.options = padding_mode, dilation
        return _convolve(x, kernel, bias, padding_mode, dilation)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, kernel), options = ctx.saved_tensors, ctx.options
        g = _laid_out(gradients[0])
        to_input, to_kernel, to_bias, *_ = ctx.needs_input_grad
        return (
            _convolve_adjoint(g, kernel, *options) if to_input else None,
            _kernel_gradient(_padded(x, kernel, *options), g, kernel, *options) if to_kernel else None,
            g.sum((0, 2, 3)) if to_bias else None,
            None,
            None,
        )


class _ResidualConvolution(torch.autograd.Function):
    """y = x - W^T h with h = relu(W x + b).

    With u = D W g, D the slopes of relu: the gradients are g - W^T u for x, and minus those of <u, W x> and
    <h, W g> for W. On CPUs two images are kept, x and h. On accelerators, short of memory rather than of arithmetic,
    behind a 1 x 1 kernel on larger images, which takes a ninth of the time of a 3 x 3 one and as much memory, and where
    a second derivative is wanted, h is computed anew: one convolution more than six.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor | None, padding_mode: PaddingMode) -> Tensor:
        hidden = _convolve(x, kernel, bias, padding_mode).relu_()
        keeps = is_cpu(x.device) and (reach(kernel) != (0, 0) or keeps_activation((x.shape[-2], x.shape[-1])))
        ctx.save_for_backward(x, kernel, bias, hidden if keeps else None)
        ctx.padding_mode = padding_mode
        branch = _convolve_adjoint(hidden, kernel, padding_mode)
        return torch.sub(x, branch, out=branch)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, kernel, bias, hidden), mode = ctx.saved_tensors, ctx.padding_mode
        if torch.is_grad_enabled() or hidden is None:
            hidden = F.relu(_convolve(x, kernel, bias, mode))
        g = _laid_out(gradients[0])
        padded = _padded(g, kernel, mode)
        inner = torch.ops.aten.threshold_backward(_convolve_padded(padded, kernel, None, mode), hidden, 0)
        to_input, to_kernel, to_bias, _ = ctx.needs_input_grad
        kernel_gradient = None
        if to_kernel:
            there = _kernel_gradient(_padded(x, kernel, mode), inner, kernel, mode)
            kernel_gradient = -(there + _kernel_gradient(padded, hidden, kernel, mode))
        return (
            g - _convolve_adjoint(inner, kernel, mode) if to_input else None,
            kernel_gradient,
            -inner.sum((0, 2, 3)) if to_bias else None,
            None,
        )


ROWS = (
    Row(
        same_convolution,
        convolution_of_pixels,
        "all",
        "without it AOL and BCOP at XS: step 1.15, inference 1.65, memory 1.06 (accelerators 1.14, 1.20)",
    ),
    Row(
        residual_convolution,
        residual_of_few_images,
        "all",
        "without it CPL at XS: step 1.25, inference 1.74, memory 1.39 (accelerators 2.8)",
    ),
    Row(grouped_convolution, grouped_by_pixels, "all", "without it depthwise 3 x 3: inference 1.59"),
)
