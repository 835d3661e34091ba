"""Bounds of affine maps: a matrix, a convolution, or one matrix per frequency, each with a bias.

A convolution in the frequency domain is y = F^T M F x with the real DFT F as one or two float matrices, so that
||y|| <= ||columns||^2 ||rows||^2 max_f ||M^(f)|| ||x||, with the norms of the float matrices that are used: the DFT is
an isometry up to rounding only, and that rounding is part of the layer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg.fourier import Blocks, RealDFT, Size, is_exactly_halved, may_be_halved, torus_of, unpack
from onelip.linalg.norms import real_parts
from onelip.proofs.layer_bound import LayerBound, compose, linear_bound
from onelip.proofs.proven import SAFETY, magnitude_norm_bound, norm_bound, vector_norm_bound
from onelip.proofs.proven_convolution import (
    Convolution,
    convolution_magnitude_bound,
    convolution_norm_bound,
    output_size,
)
from onelip.proofs.spectral_steps import spectral_steps


def bias_norm(bias: Tensor | None, repetitions: int) -> float:
    """Norm of a bias that is added at so many places."""
    return 0.0 if bias is None else vector_norm_bound(bias) * math.sqrt(repetitions) * SAFETY


def matrix_bound(matrix: Tensor, bias: Tensor | None, rows: int = 1) -> LayerBound:
    """A matrix product with a bias, on `rows` vectors per input."""
    return linear_bound(
        norm_bound(matrix),
        magnitude_norm_bound(matrix),
        terms=matrix.shape[1],
        outputs=matrix.shape[0] * rows,
        bias_norm=bias_norm(bias, rows),
    )


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


class SpectralParts(NamedTuple):
    """Bounds of the steps of a layer in the frequency domain: DFT, product, inverse DFT."""

    there: list[LayerBound]
    product: LayerBound
    back: list[LayerBound]


def spectral_bound(matrices: Tensor, dft: RealDFT, bias: Tensor | None = None, images: int = 1) -> LayerBound:
    """DFT, one product per frequency, inverse DFT and bias, on `images` tori per input."""
    parts = _spectral_parts(matrices, dft, bias, images)
    if images > 1:
        return compose(*parts.there, parts.product, *parts.back)
    return compose(*spectral_steps(*parts, matrices, dft, bias))


def spectral_pair(matrices: Tensor, dft: RealDFT, bias: Tensor | None) -> tuple[LayerBound, LayerBound]:
    """The bound of a square layer with its bias, and one of its transpose without."""
    parts = _spectral_parts(matrices, dft, bias, 1)
    there = compose(*spectral_steps(*parts, matrices, dft, bias))
    return there, replace(compose(*spectral_steps(*parts, matrices, dft, adjoint=True)), offset=0.0)


def _spectral_parts(matrices: Tensor, dft: RealDFT, bias: Tensor | None, images: int) -> SpectralParts:
    """`matrices` is in the layout of the product, of which the first channels may be cut out.

    The bias b is added at the frequency 0, multiplied by the rounded sqrt(h w): two more roundings than adding it to
    the image.
    """
    transforms = transforms_of(dft)
    numbers = math.prod(len(matrix) for matrix in transforms) * images
    inputs, outputs = (channels * numbers for channels in matrices.shape[-2:])
    blocks = unpack(matrices.double(), torus_of(dft))
    product = linear_bound(
        blocks_norm_bound(blocks),
        max(magnitude_norm_bound(real_parts(block).abs().sum(-1)) for block in blocks),
        terms=2 * blocks[0].shape[-1] + 2,
        outputs=outputs,
        bias_norm=bias_norm(bias, math.prod(torus_of(dft)) * images) * SAFETY,
    )
    there = [_transform_bound(matrix, inputs) for matrix in transforms]
    back = [_transform_bound(matrix.mT, outputs) for matrix in reversed(transforms)]
    return SpectralParts(there, product, back)


def _transform_bound(matrix: Tensor, outputs: int) -> LayerBound:
    return linear_bound(norm_bound(matrix), magnitude_norm_bound(matrix), terms=matrix.shape[1], outputs=outputs)


def blocks_norm_bound(blocks: Blocks) -> float:
    """The largest norm of a matrix at any frequency."""
    return max(norm_bound(block) for block in blocks)


def dft_norm_bound(dft: RealDFT) -> float:
    """Norm of the float matrices that the DFT consists of."""
    return math.prod(map(norm_bound, transforms_of(dft))) * SAFETY


def transforms_of(dft: RealDFT) -> list[Tensor]:
    """The float matrices of the DFT in the order in which they are applied.

    Programs read half of the matrix of the rows, see `onelip.fast.halved_product`: the other half must be the same.
    """
    if dft.columns is None:
        return [dft.rows]
    if may_be_halved(dft.rows) and not is_exactly_halved(dft.rows):
        raise InvalidInputError("the DFT of this layer is not the one of this version: transform or fuse it again")
    return [dft.columns, dft.rows]
