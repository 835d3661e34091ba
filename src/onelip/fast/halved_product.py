"""One step of the fast Fourier transform before a DFT by a matrix: half of the multiplications.

In a DFT of even length h, e^(-2 pi i f (p + h/2) / h) = (-1)^f e^(-2 pi i f p / h): the coefficients of the second half
of the positions are those of the first half at even frequencies, and their negatives at odd ones. With R = [R0 R1] for
the two halves of the columns,

    (R x)_even = R0_even (x0 + x1),      (R x)_odd = R0_odd (x0 - x1).

What is computed is a product with R itself, number by number, in another order of the sums: every output still is a sum
of the terms R_jk x_k, each rounded once by the addition and then as in an inner product of h terms. Norms of R, and
errors of inner products of 2 h terms with it, bound this too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.linalg.fourier import may_be_halved, multiply_rows
from onelip.linalg.tensor_modes import run


def halved_product(matrix: Tensor, x: Tensor, transpose: bool = False) -> Tensor:
    """R x, or R^T x, for the matrix R (2 h, 2 h) of a DFT and x (2 h, n)."""
    return run(_HalvedProduct, matrix, x, transpose)


class _HalvedProduct(torch.autograd.Function):
    """Linear in x, and its own gradient but for the transposition; the matrix is a constant."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor, transpose: bool) -> Tensor:
        ctx.save_for_backward(matrix)
        ctx.transpose = transpose
        half = len(matrix) // 2
        first = matrix[:, :half].to(x.dtype)  # under autocast x has the narrow type
        even, odd = first[0::2], first[1::2]
        y, scratch = torch.empty_like(x), torch.empty_like(x[:half])
        if transpose:
            torch.mm(even.mT, x[0::2], out=y[:half])
            torch.mm(odd.mT, x[1::2], out=scratch)
            torch.sub(y[:half], scratch, out=y[half:])
            y[:half].add_(scratch)
        else:
            torch.add(x[:half], x[half:], out=scratch)
            torch.mm(even, scratch, out=y[0::2])
            torch.sub(x[:half], x[half:], out=scratch)
            torch.mm(odd, scratch, out=y[1::2])
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (matrix,) = ctx.saved_tensors
        return None, run(_HalvedProduct, matrix, gradients[0].contiguous(), not ctx.transpose), None


ROWS = (
    Row(
        multiply_rows,
        halved_product,
        "cpu",
        "without it Cayley, LOT, SOC and Sandwich at XS: step 1.01 to 1.05, inference 1.05 to 1.10",
        lambda matrix, *_: may_be_halved(matrix),
    ),
)
