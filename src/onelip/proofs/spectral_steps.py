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
from onelip.proofs.layer_bound import LayerBound
from onelip.proofs.measured_rounding import Product, exact_step, measured


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
