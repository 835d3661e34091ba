"""Bounds of l(x) = x - W^T S relu(W x + b) with a diagonal S: CPL, SLL and their fused forms.

For two inputs, relu(u) - relu(v) = D (u - v) with a diagonal 0 <= D <= I, so the difference of the outputs is
(I - W^T S D W)(x - y), a symmetric matrix. Where S >= 0, 0 <= W^T S D W <= W^T S W, and with lambda = ||S^(1/2) W||^2
its eigenvalues lie in [1 - lambda, 1]: the constant is at most max(1, lambda - 1). Negative entries of S, which no
method makes, would add || |S_-|^(1/2) W ||^2 on the other side.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onelip.certification.convolution_layers import (
    LAYER_METHODS,
    convolution_bound,
    core_image,
    matrix_bound,
)
from onelip.certification.layer_bound import Arithmetic, LayerBound, RoundingError, added_to_input, compose
from onelip.certification.registry import Shape, bound_for
from onelip.layers.residual import FusedResidualConv2d, FusedResidualLinear, ResidualConv2d, ResidualLinear
from onelip.layers.spatial import adjoint_kernel
from onelip.linalg.fourier import Size
from onelip.linalg.proven import SAFETY, norm_bound
from onelip.linalg.proven_convolution import convolution_norm_bound, same_convolution_of


def residual_lipschitz(contraction: float, expansion: float) -> float:
    """Constant of I - P with -expansion <= P <= contraction: max(1 + expansion, contraction - 1)."""
    return max(1 + expansion, contraction - 1) * SAFETY if expansion > 0 else max(1.0, contraction - 1)


def residual_convolution_bound(
    kernel: Tensor, scale: Tensor, bias: Tensor | None, size: Size, padding_mode: str
) -> LayerBound:
    """x - W^T S relu(W x + b) with a convolution W on h x w images."""
    kernel, scale = kernel.detach().double(), scale.detach().double()

    def weighted_square(weights: Tensor) -> float:
        root = weights.sqrt()[:, None, None, None]
        return convolution_norm_bound(same_convolution_of(kernel * root, padding_mode), size) ** 2 * SAFETY

    back = adjoint_kernel(kernel * scale[:, None, None, None])
    branch = compose(
        convolution_bound(same_convolution_of(kernel, padding_mode), size, bias),
        _rounded_weights(convolution_bound(same_convolution_of(back, padding_mode), size, None)),
    )
    return added_to_input(branch, _lipschitz(scale, weighted_square))


def residual_product_bound(matrix: Tensor, scale: Tensor, bias: Tensor | None, rows: int) -> LayerBound:
    """x - W^T S relu(W x + b) with a matrix W."""
    matrix, scale = matrix.detach().double(), scale.detach().double()

    def weighted_square(weights: Tensor) -> float:
        return norm_bound(matrix * weights.sqrt()[:, None]) ** 2 * SAFETY

    branch = compose(
        matrix_bound(matrix, bias, rows),
        _rounded_weights(matrix_bound((matrix * scale[:, None]).mT, None, rows)),
    )
    return added_to_input(branch, _lipschitz(scale, weighted_square))


def _lipschitz(scale: Tensor, weighted_square: Callable[[Tensor], float]) -> float:
    if not bool(torch.isfinite(scale).all()):
        return math.inf
    negative = bool((scale < 0).any())
    expansion = weighted_square((-scale).clamp(min=0)) if negative else 0.0
    return residual_lipschitz(weighted_square(scale.clamp(min=0)), expansion)


def _rounded_weights(bound: LayerBound) -> LayerBound:
    """The products of scale and kernel are rounded in the pass, by u each: less than the error of the sums again."""
    inner = bound.rounding
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error = inner(arithmetic)
        return RoundingError(2 * error.slope, 2 * error.constant)

    return LayerBound(bound.lipschitz * SAFETY, bound.offset, rounding)


@bound_for(ResidualConv2d, methods=LAYER_METHODS)
def _residual_conv(layer: ResidualConv2d, shape: Shape) -> LayerBound:
    transformed = layer.transformed((shape[-2], shape[-1]))
    size = core_image(layer, shape)
    return residual_convolution_bound(transformed["kernel"], transformed["scale"], layer.bias, size, layer.padding_mode)


@bound_for(ResidualLinear, methods=LAYER_METHODS)
def _residual_linear(layer: ResidualLinear, shape: Shape) -> LayerBound:
    transformed = layer.transformed()
    return residual_product_bound(transformed["matrix"], transformed["scale"], layer.bias, math.prod(shape[:-1]))


@bound_for(FusedResidualConv2d)
def _fused_residual_conv(module: FusedResidualConv2d, shape: Shape) -> LayerBound:
    tensors = module.tensors()
    size = shape[-2], shape[-1]
    return residual_convolution_bound(tensors["kernel"], tensors["scale"], module.bias, size, module.padding_mode)


@bound_for(FusedResidualLinear)
def _fused_residual_linear(module: FusedResidualLinear, shape: Shape) -> LayerBound:
    tensors = module.tensors()
    return residual_product_bound(tensors["matrix"], tensors["scale"], module.bias, math.prod(shape[:-1]))
