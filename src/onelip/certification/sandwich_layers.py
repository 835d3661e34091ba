"""Bounds of sandwich layers l(x) = V relu(U x + b), with V = sqrt(2) A^T and U = sqrt(2) B as deployed.

The difference of two outputs is V D U (x - y) with a diagonal 0 <= D <= I. For unit vectors p and q, with
v = D^(1/2) V^T p and u = D^(1/2) U q: <p, V D U q> = <v, u> <= ||v + u||^2 / 4 = ||D^(1/2) [V^T U] (p, q)||^2 / 4, and
the vector (p, q) has norm sqrt(2). Hence the constant is at most ||[V^T U]||^2 / 2, which is 1 where A A^T + B B^T = I.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from onelip.certification.convolution_layers import LAYER_METHODS, core_image, matrix_bound, used_bias
from onelip.certification.registry import Shape, bound_for
from onelip.certification.spectral_layers import blocks_norm, frequency_blocks, spectral_bound, transform_norm
from onelip.layers.sandwich import FusedSandwichConv2d, FusedSandwichLinear, SandwichConv2d, SandwichLinear
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound, compose
from onelip.linalg.proven import SAFETY, norm_bound


def sandwich_product_bound(tensors: Mapping[str, Tensor], bias: Tensor | None, rows: int) -> LayerBound:
    """Two matrix products with an activation between them."""
    outer, inner = tensors["outer"], tensors["inner"]
    norm = norm_bound(torch.cat([outer.mT, inner], dim=-1))
    parts = compose(matrix_bound(inner, bias, rows), matrix_bound(outer, None, rows))
    return LayerBound(norm**2 / 2 * SAFETY, parts.offset, parts.rounding)


def sandwich_convolution_bound(tensors: Mapping[str, Tensor], bias: Tensor | None) -> LayerBound:
    """Two convolutions in the frequency domain. [V^T U] = F^T [V^(f)^H U^(f)] (F + F) with the float DFT F."""
    outer, inner = (frequency_blocks(tensors[name], tensors) for name in ("outer", "inner"))
    both = tuple(torch.cat([v.mH, u], dim=-1) for v, u in zip(outer, inner, strict=True))
    norm = blocks_norm(both) * transform_norm(tensors) ** 2
    parts = compose(spectral_bound(tensors["inner"], tensors, bias=bias), spectral_bound(tensors["outer"], tensors))
    return LayerBound(norm**2 / 2 * SAFETY, parts.offset, parts.rounding)


@bound_for(SandwichLinear, methods=LAYER_METHODS)
def _sandwich_linear(layer: SandwichLinear, shape: Shape) -> LayerBound:
    return sandwich_product_bound(layer.transformed(), used_bias(layer, layer.core_out), math.prod(shape[:-1]))


@bound_for(FusedSandwichLinear)
def _fused_sandwich_linear(module: FusedSandwichLinear, shape: Shape) -> LayerBound:
    return sandwich_product_bound(module.tensors(), module.bias, math.prod(shape[:-1]))


@bound_for(SandwichConv2d, methods=LAYER_METHODS)
def _sandwich_conv(layer: SandwichConv2d, shape: Shape) -> LayerBound:
    size = core_image(layer, shape)
    return _convolutional(layer.transformed((shape[-2], shape[-1])), used_bias(layer, layer.core_out), size)


def _convolutional(tensors: Mapping[str, Tensor], bias: Tensor | None, size: Size) -> LayerBound:
    """In the frequency domain, or one product per pixel for 1 x 1 kernels."""
    if "dft_rows" in tensors:
        return sandwich_convolution_bound(tensors, bias)
    matrices = {name: tensor[..., 0, 0] for name, tensor in tensors.items()}
    return sandwich_product_bound(matrices, bias, size[0] * size[1])


@bound_for(FusedSandwichConv2d)
def _fused_sandwich_conv(module: FusedSandwichConv2d, shape: Shape) -> LayerBound:
    return _convolutional(module.tensors(), module.bias, (shape[-2], shape[-1]))
