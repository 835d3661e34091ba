"""Bounds of layers that are one convolution or one matrix product with a bias.

The norm of the convolution comes from its frequency matrices on the true torus, see `onelip.linalg.proven_convolution`.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from onelip.certification.registry import Shape, bound_for
from onelip.layers.shapes import LipschitzConv2d
from onelip.layers.spatial import MatrixLinear, WrappingConv2d
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound, linear_bound
from onelip.linalg.proven import magnitude_norm_bound, norm_bound, vector_norm_bound
from onelip.linalg.proven_convolution import (
    Convolution,
    convolution_magnitude_bound,
    convolution_norm_bound,
    output_size,
    same_convolution_of,
)

LAYER_METHODS = ("forward", "apply_to", "apply_core")
"""The methods that make up what a `LipschitzLayer` computes with its transformed parameters."""


def convolution_bound(convolution: Convolution, size: Size, bias: Tensor | None) -> LayerBound:
    """A convolution with a bias on h x w images."""
    kernel = convolution.kernel
    height, width = output_size(convolution, size)
    return linear_bound(
        convolution_norm_bound(convolution, size),
        convolution_magnitude_bound(convolution, size),
        terms=kernel[0].numel(),
        outputs=kernel.shape[0] * height * width,
        bias_norm=bias_norm(bias, height * width),
    )


def matrix_bound(matrix: Tensor, bias: Tensor | None, rows: int = 1) -> LayerBound:
    """A matrix product with a bias, on `rows` vectors per input."""
    return linear_bound(
        norm_bound(matrix),
        magnitude_norm_bound(matrix),
        terms=matrix.shape[1],
        outputs=matrix.shape[0] * rows,
        bias_norm=bias_norm(bias, rows),
    )


def bias_norm(bias: Tensor | None, repetitions: int) -> float:
    """Norm of a bias that is added at so many places."""
    return 0.0 if bias is None else vector_norm_bound(bias) * math.sqrt(repetitions)


def core_image(layer: LipschitzConv2d, shape: Shape) -> Size:
    """Height and width of what the core of a layer sees: the stride unshuffles pixels, after zero padding."""
    return -(-shape[-2] // layer.stride[0]), -(-shape[-1] // layer.stride[1])


def used_bias(layer: nn.Module, channels: int) -> Tensor | None:
    """The entries of a layer's bias that reach its output."""
    bias = layer.bias
    return bias[:channels] if isinstance(bias, Tensor) else None


@bound_for(MatrixLinear, methods=LAYER_METHODS)
def _matrix_linear(layer: MatrixLinear, shape: Shape) -> LayerBound:
    matrix = layer.transformed()["matrix"][: layer.out_features, : layer.in_features]
    return matrix_bound(matrix, used_bias(layer, layer.out_features), math.prod(shape[:-1]))


@bound_for(WrappingConv2d)
def _wrapping_conv(module: WrappingConv2d, shape: Shape) -> LayerBound:
    return convolution_bound(
        same_convolution_of(module.get_parameter("kernel"), "circular"), (shape[-2], shape[-1]), module.bias
    )


@bound_for(nn.Conv2d, methods=("forward", "_conv_forward"))
def _conv(module: nn.Conv2d, shape: Shape) -> LayerBound:
    stride, dilation = _pair(module.stride), _pair(module.dilation)
    convolution = Convolution(
        module.weight, stride, dilation, _conv_padding(module), module.padding_mode, module.groups
    )
    return convolution_bound(convolution, (shape[-2], shape[-1]), module.bias)


@bound_for(nn.Linear)
def _linear(module: nn.Linear, shape: Shape) -> LayerBound:
    return matrix_bound(module.weight, module.bias, math.prod(shape[:-1]))


def _conv_padding(module: nn.Conv2d) -> tuple[Size, Size]:
    """(before, after) for rows and columns; "same" puts the odd pixel of an even kernel after the image."""
    if module.padding == "valid":
        return (0, 0), (0, 0)
    if module.padding == "same":
        total = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        rows, columns = ((t // 2, t - t // 2) for t in total)
        return rows, columns
    rows, columns = _pair(module.padding)
    return (rows, rows), (columns, columns)


def _pair(value: int | str | tuple[int, ...]) -> Size:
    assert not isinstance(value, str)
    return (value, value) if isinstance(value, int) else (value[0], value[1])
