"""Bounds of layers that act in the frequency domain: y = F^T M F x with the real DFT F as two float matrices.

||y|| <= ||columns||^2 ||rows||^2 max_f ||M^(f)|| ||x||, with the norms of the float matrices that are used: the DFT is
an isometry up to rounding only, and that rounding is part of the layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from onelip.certification.convolution_layers import (
    LAYER_METHODS,
    bias_norm,
    convolution_bound,
    core_image,
    matrix_bound,
    used_bias,
)
from onelip.certification.layer_bound import LayerBound, compose, linear_bound
from onelip.certification.registry import Shape, bound_for
from onelip.layers.eco import ECOConv2d, FusedECOConv2d, dilation_on
from onelip.layers.shapes import LipschitzConv2d
from onelip.layers.spatial import KernelConv2d
from onelip.layers.spectral_conv import FusedSpectralConv2d, SpectralConv2d
from onelip.linalg.fourier import RealDFT, torus_of
from onelip.linalg.proven import SAFETY, magnitude_norm_bound, norm_bound
from onelip.linalg.proven_convolution import same_convolution_of


def spectral_bound(
    matrices: Tensor, dft: Mapping[str, Tensor], images: int = 1, bias: Tensor | None = None
) -> LayerBound:
    """DFT, one product per frequency, inverse DFT and bias, on `images` tori per input.

    `matrices` is (parts, frequencies, in, out), real and imaginary parts, of which the first channels may be cut out.
    """
    columns, rows = dft["dft_columns"], dft["dft_rows"]
    inputs, outputs = (channels * rows.shape[0] * columns.shape[0] * images for channels in matrices.shape[-2:])
    pixels = math.prod(torus_of(RealDFT(columns, rows))) * images
    return compose(
        _transform(columns, inputs),
        _transform(rows, inputs),
        frequency_product_bound(matrices, outputs, bias_norm(bias, pixels)),
        _transform(rows.mT, outputs),
        _transform(columns.mT, outputs),
    )


def frequency_product_bound(matrices: Tensor, outputs: int, constant_norm: float = 0.0) -> LayerBound:
    """One product per frequency, real or complex and computed as four real ones, and the bias at the frequency 0.

    The bias b is multiplied by the rounded sqrt(h w) there, which is two more roundings than adding it.
    """
    magnitude = magnitude_norm_bound(matrices.double().abs().sum(0))
    terms = len(matrices) * matrices.shape[-2] + 2
    return linear_bound(norm_bound(joined(matrices)), magnitude, terms, outputs, constant_norm * SAFETY)


def joined(matrices: Tensor) -> Tensor:
    """One real or complex float64 matrix per frequency, from its parts."""
    parts = matrices.double().unbind(0)
    return parts[0] if len(parts) == 1 else torch.complex(*parts)


def transform_norm(dft: Mapping[str, Tensor]) -> float:
    """Norm of the float DFT."""
    return norm_bound(dft["dft_columns"]) * norm_bound(dft["dft_rows"])


def _transform(matrix: Tensor, outputs: int) -> LayerBound:
    return linear_bound(norm_bound(matrix), magnitude_norm_bound(matrix), terms=matrix.shape[1], outputs=outputs)


def used_matrices(matrices: Tensor, layer: LipschitzConv2d) -> Tensor:
    """Without the rows for zero channels that are appended and the columns of outputs that are cut off."""
    inputs = layer.in_channels * layer.stride[0] * layer.stride[1]
    return matrices[..., :inputs, : layer.out_channels]


@bound_for(KernelConv2d, methods=LAYER_METHODS)
@bound_for(SpectralConv2d, methods=LAYER_METHODS)
def _conv(layer: KernelConv2d | SpectralConv2d, shape: Shape) -> LayerBound:
    return conv_bound(layer, layer.transformed((shape[-2], shape[-1])), shape)


def conv_bound(layer: LipschitzConv2d, transformed: Mapping[str, Tensor], shape: Shape) -> LayerBound:
    """A convolution by a kernel or in the frequency domain, whichever the transformed parameters are for."""
    bias = used_bias(layer, layer.out_channels)
    if "kernel" in transformed:
        # Zero channels that are appended to the input and outputs that are cut off take no part.
        kernel = transformed["kernel"][: layer.out_channels, : layer.in_channels * layer.stride[0] * layer.stride[1]]
        convolution = same_convolution_of(kernel, layer.padding_mode)
        return convolution_bound(convolution, core_image(layer, shape), bias)
    return spectral_bound(used_matrices(transformed["matrices"], layer), transformed, bias=bias)


@bound_for(FusedSpectralConv2d)
def _fused_spectral_conv(module: FusedSpectralConv2d, shape: Shape) -> LayerBound:
    tensors = module.tensors()
    return spectral_bound(tensors["matrices"], tensors, bias=module.bias)


@bound_for(ECOConv2d, methods=LAYER_METHODS)
def _eco(layer: ECOConv2d, shape: Shape) -> LayerBound:
    transformed = layer.transformed((shape[-2], shape[-1]))
    classes = math.prod(dilation_on(core_image(layer, shape), layer.kernel_size[0], layer.padding_mode))
    return _class_bound(transformed, classes, used_bias(layer, layer.out_channels))


@bound_for(FusedECOConv2d)
def _fused_eco(module: FusedECOConv2d, shape: Shape) -> LayerBound:
    tensors = module.tensors()
    classes = math.prod(dilation_on((shape[-2], shape[-1]), module.side, module.padding_mode))
    return _class_bound(tensors, classes, module.bias)


def _class_bound(transformed: Mapping[str, Tensor], classes: int, bias: Tensor | None) -> LayerBound:
    """ECO on `classes` tori of k x k pixels, each by its frequencies or by one matrix."""
    if "dense" not in transformed:
        return spectral_bound(transformed["matrices"], transformed, classes, bias)
    matrix = transformed["dense"].mT
    whole_bias = None if bias is None else bias.repeat(len(matrix) // len(bias))
    return matrix_bound(matrix, whole_bias, classes)
