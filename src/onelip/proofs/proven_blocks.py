"""The proven norm of one large matrix, in blocks: two matrices of its smaller side in float64 at a time.

The proof is that of `onelip.proofs.proven.norm_bound`. A few steps of the Lanczos iteration suggest the eigenvalue, as
they need products with vectors only. G = A^T A is symmetric and R triangular: of G and of R^T R the part above the
diagonal is computed, in panels of columns, without the zeros of R, and counts twice. The factorisation overwrites
t I - G.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from onelip.proofs.exact_scaling import Scaled, denormal_norm, largest_exponent, scale
from onelip.proofs.layer_bound import SAFETY, UNIT_ROUNDOFF, gamma

BLOCK_ENTRIES = 2**22
LANCZOS_STEPS = 60
_PANELS = 8
"""Of G, so that little more than half of it is computed."""

_FIRST_SLACK = 2.0**-24


def large_norm_bound(matrix: Tensor) -> float:
    """Proven upper bound of ||A||_2 for one real matrix (m, n), m >= n."""
    exponent = largest_exponent(matrix)
    if exponent is None:
        return math.inf
    side = matrix.shape[-1]
    gram = torch.zeros(side, side, dtype=torch.float64, device=matrix.device)
    square = 0.0
    for rows in matrix.split(max(1, BLOCK_ENTRIES // side)):
        block = scale(rows, exponent)
        for columns in _panels(side, -(-side // _PANELS)):
            gram[: columns.stop, columns].addmm_(block[:, : columns.stop].mT, block[:, columns])
        square += float(block.square().sum())
    for columns in _panels(side, max(1, BLOCK_ENTRIES // side)):
        gram[columns, : columns.start] = gram[: columns.start, columns].mT
        square_part = gram[columns, columns]
        square_part.copy_(square_part.triu() + square_part.triu(1).mT)
    frobenius = square * (1 + gamma(matrix.numel())) * SAFETY
    bound = 0.0
    if square > 0:
        gram_error = gamma(matrix.shape[0]) * frobenius
        bound = math.sqrt(min(_verified_bound(gram, frobenius) + gram_error, frobenius)) * SAFETY
    return Scaled(gram, exponent, denormal_norm(matrix)).restored(bound)


def _panels(side: int, step: int) -> Iterator[slice]:
    for start in range(0, side, step):
        yield slice(start, min(start + step, side))


def _verified_bound(gram: Tensor, limit: float) -> float:
    """Proven upper bound of the largest eigenvalue near the Lanczos estimate, or `limit`, which is one."""
    candidate, slack = _largest_ritz_value(gram), _FIRST_SLACK
    while 0 < (bound := candidate * (1 + slack)) < limit:
        factor = gram.neg()
        factor.diagonal().add_(bound)
        failures = torch.zeros((), dtype=torch.int32, device=gram.device)
        # Of a symmetric matrix the transpose is the same, and it lies in memory as LAPACK wants it: nothing is copied.
        torch.linalg.cholesky_ex(factor.mT, upper=True, out=(factor.mT, failures))
        if not bool(failures.any()):
            result = bound + _defect(gram, bound, factor.mT)
            return result if result < limit else limit  # a NaN is no bound
        slack *= 16
    return limit


def _largest_ritz_value(gram: Tensor) -> float:
    side = gram.shape[0]
    vector = torch.arange(1, side + 1, device=gram.device).double().mul(1.618).frac().add(0.1)
    vector, previous, off_diagonal = vector / vector.norm(), torch.zeros_like(vector), 0.0
    diagonals, others = [], []
    for _ in range(min(side, LANCZOS_STEPS)):
        image = gram @ vector - off_diagonal * previous
        diagonals.append(float(image @ vector))
        image = image - diagonals[-1] * vector
        off_diagonal = float(image.norm())
        if not off_diagonal > 1e-12:
            break
        others.append(off_diagonal)
        previous, vector = vector, image / off_diagonal
    tridiagonal = torch.diag(torch.tensor(diagonals, dtype=torch.float64))
    for index, value in enumerate(others[: len(diagonals) - 1]):
        tridiagonal[index, index + 1] = tridiagonal[index + 1, index] = value
    try:
        return float(torch.linalg.eigvalsh(tridiagonal)[-1])
    except RuntimeError:  # it did not converge
        return math.nan


def _defect(gram: Tensor, bound: float, factor: Tensor) -> float:
    """Bound of ||t I - G - R^T R||_F with the rounding of R^T R and of the differences."""
    side = gram.shape[0]
    squares = magnitudes = factor_square = 0.0
    for columns in _panels(side, max(1, BLOCK_ENTRIES // side)):
        above, end = columns.start, columns.stop
        part = factor[:end, columns]
        factor_square += float(part.square().sum())
        difference = (factor[:end, :end].mT @ part).neg_()
        magnitude = difference.abs().add_(gram[:end, columns].abs())
        difference.sub_(gram[:end, columns])
        for sums in (difference, magnitude):
            sums[columns].diagonal().add_(bound)
        # What is above the diagonal block stands below it, too.
        squares += float(difference.square_().sum()) + float(difference[:above].sum())
        magnitudes += float(magnitude.square_().sum()) + float(magnitude[:above].sum())
    relative = (1 + gamma(2 * side * side)) * SAFETY
    rounding = 3 * UNIT_ROUNDOFF[torch.float64] * math.sqrt(magnitudes)
    return (math.sqrt(squares) + rounding + gamma(side) * factor_square) * relative
