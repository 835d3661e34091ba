"""Inverses by matrix products, for matrices whose Hermitian part is positive definite.

Of M = [[A, B], [C, D]] with S = D - C A^(-1) B the inverse is
[[A^(-1) + A^(-1) B S^(-1) C A^(-1), -A^(-1) B S^(-1)], [-S^(-1) C A^(-1), S^(-1)]]: six products of halves. A and S
have positive definite Hermitian parts too, so that nothing has to be pivoted and the same can be done with them, until
they are small. All of it takes about as many operations as one product of two matrices. LAPACK's inverses of batches
take the time of two to ten products.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.linalg.norms import one_batch
from onelip.linalg.verified import unverified_inverse

_LARGEST_BY_LAPACK = 16


def block_inverse(matrix: Tensor) -> Tensor:
    """M^(-1) of matrices (..., n, n) with M + M^H positive definite."""
    return _inverse(one_batch(matrix)).reshape(matrix.shape)


def _inverse(matrix: Tensor) -> Tensor:
    half, odd = divmod(matrix.shape[-1], 2)
    if odd or 2 * half <= _LARGEST_BY_LAPACK:
        return torch.linalg.inv(matrix)
    (a, b), (c, d) = (rows.split(half, -1) for rows in matrix.split(half, -2))
    result = torch.empty_like(matrix)
    (upper, right), (left, lower) = (rows.split(half, -1) for rows in result.split(half, -2))
    inverse = _inverse(a)
    below = torch.bmm(c, inverse)
    lower.copy_(_inverse(torch.baddbmm(d, below, b, alpha=-1)))
    beside = torch.bmm(inverse, b)
    torch.neg(torch.bmm(lower, below), out=left)
    torch.neg(torch.bmm(beside, lower), out=right)
    upper.copy_(torch.baddbmm(inverse, beside, left, alpha=-1))
    return result


def _is_constant(matrix: Tensor) -> bool:
    """Outside autograd, which does not follow what writes into its result."""
    return not (matrix.requires_grad and torch.is_grad_enabled())


ROWS = (
    Row(
        unverified_inverse,
        block_inverse,
        "cpu",
        "without it at XS: step 1.09 (Cayley), 1.08 (Sandwich)",
        _is_constant,
    ),
)
