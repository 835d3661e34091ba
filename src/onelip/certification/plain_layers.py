"""Bounds of torch's own modules, and of normalisation and residual blocks."""

from __future__ import annotations

import math

import torch
from torch import nn

from onelip.certification.chain import chain_bound
from onelip.certification.modules import Normalise, Residual
from onelip.certification.registry import Shape, bound_for, unknown
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound, added_to_input, exact_bound, linear_bound, relative_bound
from onelip.linalg.linear_bounds import bias_norm, convolution_bound, matrix_bound
from onelip.linalg.proven import SAFETY
from onelip.linalg.proven_convolution import Convolution

_LIBRARY_ULPS = 16.0
"""Units of roundoff within which exponentials and hyperbolic functions are assumed to be computed."""


@bound_for(nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelUnshuffle, nn.PixelShuffle, nn.ChannelShuffle)
@bound_for(nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.ZeroPad2d)
def _exact(module: nn.Module, shape: Shape) -> LayerBound:
    """Entries are sorted, moved, kept, cut off or clamped; every one of these has constant 1 and rounds nothing."""
    offset = 0.0
    if isinstance(module, nn.Hardtanh):  # ReLU6 too: clamping moves zero if zero is outside
        offset = max(module.min_val, -module.max_val, 0.0) * math.sqrt(math.prod(shape))
    return LayerBound(1.0, offset, exact_bound().rounding)


@bound_for(nn.Conv2d, methods=("forward", "_conv_forward"))
def _conv(module: nn.Conv2d, shape: Shape) -> LayerBound:
    stride, dilation = _pair(module.stride), _pair(module.dilation)
    convolution = Convolution(
        module.weight, stride, dilation, _conv_padding(module), module.padding_mode, module.groups
    )
    return convolution_bound(convolution, (shape[-2], shape[-1]), module.bias)


def _conv_padding(module: nn.Conv2d) -> tuple[Size, Size]:
    """(before, after) for rows and columns; "same" puts the odd pixel of an even kernel after the image."""
    if module.padding == "valid":
        return (0, 0), (0, 0)
    if module.padding == "same":
        total = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        rows, columns = ((t // 2, t - t // 2) for t in total)
        return rows, columns
    assert not isinstance(module.padding, str)
    rows, columns = _pair(module.padding)
    return (rows, rows), (columns, columns)


@bound_for(nn.Linear)
def _linear(module: nn.Linear, shape: Shape) -> LayerBound:
    return matrix_bound(module.weight, module.bias, math.prod(shape[:-1]))


@bound_for(nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout)
def _dropout(module: nn.Dropout, shape: Shape) -> LayerBound:
    if module.training:
        raise unknown(module, "", "dropout is random in training mode; certificates speak of evaluation mode")
    return exact_bound()


@bound_for(nn.LeakyReLU)
def _leaky_relu(module: nn.LeakyReLU, shape: Shape) -> LayerBound:
    return relative_bound(max(1.0, abs(module.negative_slope)) * SAFETY, 2.0, math.prod(shape))


@bound_for(nn.Tanh, nn.Softsign)
def _saturating(module: nn.Module, shape: Shape) -> LayerBound:
    return relative_bound(1.0, _LIBRARY_ULPS, math.prod(shape))


@bound_for(nn.Sigmoid)
def _sigmoid(module: nn.Sigmoid, shape: Shape) -> LayerBound:
    return relative_bound(0.25, _LIBRARY_ULPS, math.prod(shape), offset=math.sqrt(math.prod(shape)))


@bound_for(nn.ELU)
def _elu(module: nn.ELU, shape: Shape) -> LayerBound:
    return relative_bound(max(1.0, abs(module.alpha)) * SAFETY, _LIBRARY_ULPS, math.prod(shape))


@bound_for(nn.AvgPool2d)
def _average_pool(module: nn.AvgPool2d, shape: Shape) -> LayerBound:
    """A convolution of every channel with the constant 1 / (kh kw)."""
    kernel, padding = _pair(module.kernel_size), _pair(module.padding)
    padded = padding != (0, 0)
    if module.ceil_mode or (padded and not module.count_include_pad):
        raise unknown(
            module, "", "windows that reach over the edge have other weights; use ceil_mode=False and whole windows"
        )
    divisor = module.divisor_override or kernel[0] * kernel[1]
    return _pool(shape, kernel, _pair(module.stride), padding, 1.0 / divisor)


@bound_for(nn.AdaptiveAvgPool2d)
def _adaptive_average_pool(module: nn.AdaptiveAvgPool2d, shape: Shape) -> LayerBound:
    wanted = module.output_size if isinstance(module.output_size, tuple) else (module.output_size,) * 2
    target = [length if out is None else out for length, out in zip(shape[-2:], wanted, strict=True)]
    if shape[-2] % target[0] or shape[-1] % target[1]:
        raise unknown(
            module, "", f"its windows overlap for {shape[-2]} x {shape[-1]} images; use a divisor of the size"
        )
    kernel = shape[-2] // target[0], shape[-1] // target[1]
    return _pool(shape, kernel, kernel, (0, 0), 1.0 / (kernel[0] * kernel[1]))


def _pool(shape: Shape, kernel: Size, stride: Size, padding: Size, weight: float) -> LayerBound:
    weights = torch.full((1, 1, *kernel), weight, dtype=torch.float64)
    rows, columns = ((side, side) for side in padding)
    one = convolution_bound(Convolution(weights, stride, padding=(rows, columns)), (shape[-2], shape[-1]), None)
    inner = one.rounding
    assert inner is not None
    # A division follows each sum, and the channels' underflows add up: twice covers the one, channels the other.
    channels = math.prod(shape[:-2])
    return LayerBound(
        one.lipschitz * SAFETY, 0.0, lambda a: type(inner(a))(2 * inner(a).slope, channels * inner(a).constant)
    )


@bound_for(nn.MaxPool2d)
def _max_pool(module: nn.MaxPool2d, shape: Shape) -> LayerBound:
    """|max a - max b| <= ||a - b|| in every window; a pixel lies in at most ceil(k / s) windows along each axis."""
    if module.return_indices:
        raise unknown(module, "", "it returns indices too")
    kernel, stride, dilation = (_pair(v) for v in (module.kernel_size, module.stride, module.dilation))
    if dilation != (1, 1):
        raise unknown(module, "", "dilated windows overlap in other ways; use dilation=1")
    windows = math.prod(-(-k // s) for k, s in zip(kernel, stride, strict=True))
    return exact_bound(math.sqrt(windows) * (SAFETY if windows > 1 else 1.0))


@bound_for(Normalise)
def _normalise(module: Normalise, shape: Shape) -> LayerBound:
    """(x - mean) / std: the smallest deviation sets the constant."""
    smallest = float(module.std.double().abs().amin())
    if not smallest > 0:
        raise unknown(module, "", "a standard deviation of zero")
    pixels = math.prod(shape[1:])
    offset = bias_norm(module.mean.double() / module.std.double(), pixels)
    factor = 1 / smallest * SAFETY
    return linear_bound(factor, factor, terms=2, outputs=math.prod(shape), bias_norm=offset)


@bound_for(Residual)
def _residual(module: Residual, shape: Shape) -> LayerBound:
    """||x + f(x) - y - f(y)|| <= (1 + L) ||x - y||."""
    if any(getattr(part, "inplace", False) for part in module.branch.modules()):
        raise unknown(module, "", "an in-place module in its branch changes the input it is added to")
    branch = chain_bound(module.branch, shape)
    return added_to_input(branch, (1 + branch.lipschitz) * SAFETY)


def _pair(value: int | tuple[int, ...]) -> Size:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
