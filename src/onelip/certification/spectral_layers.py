"""Bounds of layers that act in the frequency domain: y = F^T M F x with the real DFT F as one or two float matrices.

||y|| <= ||columns||^2 ||rows||^2 max_f ||M^(f)|| ||x||, with the norms of the float matrices that are used: the DFT is
an isometry up to rounding only, and that rounding is part of the layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from torch import Tensor

from onelip.certification.convolution_layers import LAYER_METHODS, bias_norm, convolution_bound, core_image, used_bias
from onelip.certification.registry import Shape, bound_for
from onelip.layers.eco import ECOConv2d, FusedECOConv2d, dilation_on
from onelip.layers.shapes import LipschitzConv2d
from onelip.layers.spatial import KernelConv2d
from onelip.layers.spectral_conv import FusedSpectralConv2d, SpectralConv2d, dft_of
from onelip.linalg.fourier import Blocks, torus_of, unpack
from onelip.linalg.layer_bound import LayerBound, compose, linear_bound
from onelip.linalg.proven import SAFETY, magnitude_norm_bound, norm_bound
from onelip.linalg.proven_convolution import same_convolution_of
from onelip.linalg.spectral import real_parts


def spectral_bound(
    matrices: Tensor, dft: Mapping[str, Tensor], images: int = 1, bias: Tensor | None = None
) -> LayerBound:
    """DFT, one product per frequency, inverse DFT and bias, on `images` tori per input.

    `matrices` is in the layout of the product, of which the first channels may be cut out.
    """
    transforms = list(_matrices_of(dft))
    numbers = math.prod(len(matrix) for matrix in transforms) * images
    inputs, outputs = (channels * numbers for channels in matrices.shape[-2:])
    pixels = math.prod(torus_of(dft_of(dft))) * images
    return compose(
        *(_transform(matrix, inputs) for matrix in transforms),
        _product_bound(frequency_blocks(matrices, dft), outputs, bias_norm(bias, pixels)),
        *(_transform(matrix.mT, outputs) for matrix in reversed(transforms)),
    )


def frequency_blocks(matrices: Tensor, dft: Mapping[str, Tensor]) -> Blocks:
    """The float64 matrices (f, out, in) of these parameters, real ones and complex ones apart."""
    return unpack(matrices.double(), torus_of(dft_of(dft)))


def _product_bound(blocks: Blocks, outputs: int, constant_norm: float) -> LayerBound:
    """One product per frequency, real or complex and computed as four real ones, and the bias at the frequency 0.

    The bias b is multiplied by the rounded sqrt(h w) there, which is two more roundings than adding it.
    """
    magnitude = max(magnitude_norm_bound(real_parts(block).abs().sum(-1)) for block in blocks)
    terms = 2 * blocks[0].shape[-1] + 2
    return linear_bound(blocks_norm(blocks), magnitude, terms, outputs, constant_norm * SAFETY)


def blocks_norm(blocks: Blocks) -> float:
    """The largest norm of a matrix."""
    return max(norm_bound(block) for block in blocks)


def transform_norm(dft: Mapping[str, Tensor]) -> float:
    """Norm of the float DFT."""
    return math.prod(norm_bound(matrix) for matrix in _matrices_of(dft))


def _matrices_of(dft: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """The matrices of the DFT in the order in which they are applied."""
    return (matrix for matrix in dft_of(dft) if matrix is not None)


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
    return spectral_bound(transformed["matrices"], transformed, classes, used_bias(layer, layer.out_channels))


@bound_for(FusedECOConv2d)
def _fused_eco(module: FusedECOConv2d, shape: Shape) -> LayerBound:
    tensors = module.tensors()
    classes = math.prod(dilation_on((shape[-2], shape[-1]), module.side, module.padding_mode))
    return spectral_bound(tensors["matrices"], tensors, classes, module.bias)
