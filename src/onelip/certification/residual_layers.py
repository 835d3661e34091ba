"""Bounds of l(x) = x - W^T relu(W x + b): CPL, SLL and their fused forms.

For two inputs, relu(u) - relu(v) = D (u - v) with a diagonal 0 <= D <= I, so the difference of the outputs is
(I - W^T D W)(x - y), a symmetric matrix. With lambda = ||W||^2, 0 <= W^T D W <= lambda I, and the eigenvalues lie in
[1 - lambda, 1]: the constant is at most max(1, lambda - 1). That holds for every W; the methods make lambda <= 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from onelip.certification.convolution_layers import (
    LAYER_METHODS,
    convolution_bound,
    core_image,
    matrix_bound,
)
from onelip.certification.registry import Shape, bound_for
from onelip.certification.spectral_layers import spectral_bound
from onelip.layers.residual import FusedResidualConv2d, FusedResidualLinear, ResidualConv2d, ResidualLinear
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import Arithmetic, LayerBound, RoundingError, added_to_input, compose
from onelip.linalg.proven import SAFETY
from onelip.linalg.proven_convolution import same_convolution_of


def residual_lipschitz(norm: float) -> float:
    """max(1, ||W||^2 - 1); nothing is known where the norm is not."""
    return max(1.0, norm * norm * SAFETY - 1) if math.isfinite(norm) else math.inf


def residual_convolution_bound(
    transformed: Mapping[str, Tensor], bias: Tensor | None, size: Size, padding_mode: str
) -> LayerBound:
    """x - W^T relu(W x + b) with a convolution W on h x w images, by a kernel or in the frequency domain.

    The program of W^T uses the transposes of the very matrices of W, or the same taps. W is square, so that the
    bound of W, which counts terms and outputs, is one of W^T too.
    """
    if "kernel" in transformed:
        there = convolution_bound(same_convolution_of(transformed["kernel"], padding_mode), size, bias)
    else:
        there = spectral_bound(transformed["matrices"], transformed, bias=bias)
    back = replace(there, offset=0.0)
    return added_to_input(_rounded_bias(compose(there, back)), residual_lipschitz(there.lipschitz))


def residual_product_bound(matrix: Tensor, bias: Tensor | None, rows: int) -> LayerBound:
    """x - W^T relu(W x + b) with a matrix W."""
    there, back = matrix_bound(matrix, bias, rows), matrix_bound(matrix.mT, None, rows)
    return added_to_input(_rounded_bias(compose(there, back)), residual_lipschitz(there.lipschitz))


def _rounded_bias(bound: LayerBound) -> LayerBound:
    """The product of root and bias is rounded in the pass, by u each: less than the error of adding it."""
    inner = bound.rounding
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error = inner(arithmetic)
        return RoundingError(error.slope, 2 * error.constant)

    return LayerBound(bound.lipschitz, bound.offset, rounding)


def _bias(layer: ResidualConv2d | ResidualLinear, root: Tensor) -> Tensor | None:
    return None if layer.bias is None else root.double() * layer.bias.detach().double()


@bound_for(ResidualConv2d, methods=LAYER_METHODS)
def _residual_conv(layer: ResidualConv2d, shape: Shape) -> LayerBound:
    transformed = layer.transformed((shape[-2], shape[-1]))
    bias, size = _bias(layer, transformed["root"]), core_image(layer, shape)
    return residual_convolution_bound(transformed, bias, size, layer.padding_mode)


@bound_for(ResidualLinear, methods=LAYER_METHODS)
def _residual_linear(layer: ResidualLinear, shape: Shape) -> LayerBound:
    transformed = layer.transformed()
    return residual_product_bound(transformed["matrix"], _bias(layer, transformed["root"]), math.prod(shape[:-1]))


@bound_for(FusedResidualConv2d)
def _fused_residual_conv(module: FusedResidualConv2d, shape: Shape) -> LayerBound:
    size = shape[-2], shape[-1]
    return residual_convolution_bound(module.tensors(), module.bias, size, module.padding_mode)


@bound_for(FusedResidualLinear)
def _fused_residual_linear(module: FusedResidualLinear, shape: Shape) -> LayerBound:
    return residual_product_bound(module.get_parameter("matrix"), module.bias, math.prod(shape[:-1]))
