"""The steps of a convolution in the frequency domain, for rounding errors from the numbers at hand.

A step takes activations (batch, ...) and gives the next ones; what lies between two products is moved, not computed.
Frequencies are (batch, n, channels) here, with n as in `onelip.linalg.fourier`: first the real ones, then the real and
the imaginary parts of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.linalg.fourier import RealDFT, real_frequencies, torus_of
from onelip.linalg.layer_bound import LayerBound
from onelip.linalg.measured_rounding import Product, measured, moving


def spectral_steps(
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
            moving(lambda x: x.flatten(2)),
            measured(there[0], Product(F.linear, dft.rows)),
            moving(lambda x: x.transpose(1, 2)),
            middle,
            moving(lambda x: x.transpose(1, 2)),
            measured(back[0], Product(F.linear, dft.rows.mT)),
            moving(lambda x: x.unflatten(2, (height, width))),
        ]
    return [
        measured(there[0], Product(F.linear, dft.columns)),  # (b, c, h, (part, kept))
        moving(lambda x: x.unflatten(-1, (2, -1)).permute(0, 1, 4, 2, 3).flatten(-2)),  # (b, c, kept, (h, part))
        measured(there[1], Product(F.linear, dft.rows)),  # (b, c, kept, (part, frequency))
        moving(lambda x: x.unflatten(-1, (2, -1)).permute(0, 3, 4, 2, 1).flatten(1, 3)),
        middle,
        moving(lambda x: x.unflatten(1, (2, height, -1)).permute(0, 4, 3, 1, 2).flatten(-2)),
        measured(back[0], Product(F.linear, dft.rows.mT)),
        moving(lambda x: x.unflatten(-1, (height, 2)).permute(0, 1, 3, 4, 2).flatten(-2)),
        measured(back[1], Product(F.linear, dft.columns.mT)),
    ]


def _at_frequencies(matrices: Tensor, dft: RealDFT, bias: Tensor | None, adjoint: bool) -> Product:
    """One real matrix for each real frequency, and [[A, B], [-B, A]] for the others, which is A + i B on parts."""
    flat = matrices.detach().double().flatten(0, -3)
    if adjoint:
        flat = flat.mT
    alone = real_frequencies(len(flat)) if dft.columns is None else 0
    inputs, outputs = flat.shape[-2:]
    real, imag = flat[alone:].unflatten(0, (2, -1))
    imag = -imag if adjoint else imag
    pairs = torch.cat([torch.cat([real, imag], -1), torch.cat([-imag, real], -1)], -2)
    shift = None if bias is None else bias.detach().double() * math.sqrt(math.prod(torus_of(dft)))

    def apply(x: Tensor, weight: Tensor, constant: Tensor | None) -> Tensor:
        first, second = weight.split([alone * inputs * outputs, pairs.numel()])
        y_alone = torch.matmul(x[:, :alone].transpose(0, 1), first.reshape(alone, inputs, outputs)).transpose(0, 1)
        parts = x[:, alone:].unflatten(1, (2, -1)).permute(2, 0, 1, 3).flatten(2)
        y_pairs = torch.matmul(parts, second.reshape(pairs.shape)).unflatten(2, (2, outputs))
        y = torch.cat([y_alone, y_pairs.permute(1, 2, 0, 3).flatten(1, 2)], 1)
        return y if constant is None else torch.cat([y[:, :1] + constant, y[:, 1:]], 1)

    return Product(apply, torch.cat([flat[:alone].flatten(), pairs.flatten()]), shift)
