"""Bounds of affine maps: a matrix, a convolution, or one matrix per frequency, each with a bias.

A convolution in the frequency domain is y = F^T M F x with the real DFT F as one or two float matrices, so that
||y|| <= ||columns||^2 ||rows||^2 max_f ||M^(f)|| ||x||, with the norms of the float matrices that are used: the DFT is
an isometry up to rounding only, and that rounding is part of the layer.

For rounding errors from the numbers at hand, such a layer is a list of steps on activations (batch, ...); what lies
between two products is moved, not computed. Frequencies are (batch, n, channels) there, with n as in
`onelip.linalg.fourier`: first the real ones, then the real and the imaginary parts of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.linalg.fourier import (
    Blocks,
    RealDFT,
    Size,
    is_exactly_halved,
    may_be_halved,
    real_frequencies,
    torus_of,
    unpack,
)
from onelip.linalg.norms import real_parts
from onelip.proofs.layer_bound import LayerBound, compose, linear_bound
from onelip.proofs.measured_rounding import Product, exact_step, measured
from onelip.proofs.proven import SAFETY, magnitude_norm_bound, norm_bound, vector_norm_bound
from onelip.proofs.proven_convolution import (
    Convolution,
    convolution_magnitude_bound,
    convolution_norm_bound,
    output_size,
)


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
    return compose(*_spectral_steps(*parts, matrices, dft, bias))


def spectral_pair(matrices: Tensor, dft: RealDFT, bias: Tensor | None) -> tuple[LayerBound, LayerBound]:
    """The bound of a square layer with its bias, and one of its transpose without."""
    parts = _spectral_parts(matrices, dft, bias, 1)
    there = compose(*_spectral_steps(*parts, matrices, dft, bias))
    return there, replace(compose(*_spectral_steps(*parts, matrices, dft, adjoint=True)), offset=0.0)


def spectral_factor(matrices: Tensor, dft: RealDFT) -> tuple[LayerBound, LayerBound]:
    """M F and F^T M^T with the float matrices of the DFT F; a transpose has the norm of the adjoint."""
    parts, adjoint = _spectral_parts(matrices, dft, None, 1), _spectral_parts(matrices.mT, dft, None, 1)
    return compose(*parts.there, parts.product), compose(adjoint.product, *adjoint.back)


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


def _spectral_steps(
    there: Sequence[LayerBound],
    product: LayerBound,
    back: Sequence[LayerBound],
    matrices: Tensor,
    dft: RealDFT,
    bias: Tensor | None = None,
    *,
    adjoint: bool = False,
) -> list[LayerBound]:
    """Bounds of the products of a spectral layer on one torus, with their steps, and moves between them."""
    middle = measured(product, _at_frequencies(matrices, dft, bias, adjoint), bias_roundings=2)
    height, width = torus_of(dft)
    if dft.columns is None:
        return [
            exact_step(lambda x: x.flatten(2)),
            measured(there[0], Product(F.linear, dft.rows)),
            exact_step(lambda x: x.transpose(1, 2)),
            middle,
            exact_step(lambda x: x.transpose(1, 2)),
            measured(back[0], Product(F.linear, dft.rows.mT)),
            exact_step(lambda x: x.unflatten(2, (height, width))),
        ]
    return [
        measured(there[0], Product(F.linear, dft.columns)),  # (b, c, h, (part, kept))
        exact_step(lambda x: x.unflatten(-1, (2, -1)).permute(0, 1, 4, 2, 3).flatten(-2)),  # (b, c, kept, (h, part))
        measured(there[1], Product(F.linear, dft.rows)),  # (b, c, kept, (part, frequency))
        exact_step(lambda x: x.unflatten(-1, (2, -1)).permute(0, 3, 4, 2, 1).flatten(1, 3)),
        middle,
        exact_step(lambda x: x.unflatten(1, (2, height, -1)).permute(0, 4, 3, 1, 2).flatten(-2)),
        measured(back[0], Product(F.linear, dft.rows.mT)),
        exact_step(lambda x: x.unflatten(-1, (height, 2)).permute(0, 1, 3, 4, 2).flatten(-2)),
        measured(back[1], Product(F.linear, dft.columns.mT)),
    ]


def _at_frequencies(matrices: Tensor, dft: RealDFT, bias: Tensor | None, adjoint: bool) -> Product:
    """One real matrix for each real frequency, and A + i B on the parts of the others."""
    alone = real_frequencies(math.prod(torus_of(dft))) if dft.columns is None else 0
    shift = None if bias is None else bias.detach().double() * math.sqrt(math.prod(torus_of(dft)))

    def product(x: Tensor, weight: Tensor, constant: Tensor | None, sign: int) -> Tensor:
        flat, x = weight.flatten(0, -3), x.transpose(0, 1)  # (n, batch, channels)
        flat = flat.mT if adjoint else flat
        (x_real, x_imag), (real, imag) = (part[alone:].unflatten(0, (2, -1)) for part in (x, flat))
        # (x_real + i x_imag) (A + i B); the adjoint has -B in place of B
        straight, crossed = (-1, 1) if not adjoint else (1, -1)
        y_real = x_real @ real + (straight if sign < 0 else 1) * (x_imag @ imag)
        y_imag = x_imag @ real + (crossed if sign < 0 else 1) * (x_real @ imag)
        y = torch.cat([x[:alone] @ flat[:alone], y_real, y_imag]).transpose(0, 1)
        return y if constant is None else torch.cat([y[:, :1] + constant, y[:, 1:]], 1)

    return Product(
        lambda x, weight, constant: product(x, weight, constant, -1),
        matrices,
        shift,
        lambda x, weight, constant: product(x, weight, constant, 1),
    )


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
