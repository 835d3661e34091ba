"""Matrices that are nearly orthonormal already: made so by a product or two, without an eigenvalue or an iteration."""

from __future__ import annotations

import torch
from torch import Tensor

from onelip.linalg.constants import identity
from onelip.linalg.norms import one_batch
from onelip.linalg.polar import bjorck, minimax_polar, polar_factor

_SLACK = 1e-3
"""Keeps the square root below smooth where A is orthonormal. There it costs 4e-7 of the norm."""

_NEAR = 0.5
"""Distance ||A^T A - I||_F up to which two cubic steps end within rounding of the polar factor's neighbourhood."""


def nearly_polar(matrix: Tensor) -> Tensor:
    """A contraction for every A, and A itself up to 4e-7 where A has orthonormal columns (rows, for a wide A).

    With E = A^T A - I every singular value of A is at most (1 + ||E||_F)^(1/2). Divided by that it is at most 1, and
    x -> 1.5 x - 0.5 x^3, which has its maximum 1 at x = 1, brings back what the division took from those near 1. Its
    gradient at an orthonormal A is the projection onto the tangent space of the Stiefel manifold.
    """
    if matrix.shape[-2] < matrix.shape[-1]:
        return nearly_polar(matrix.mT).mT
    # Orthonormal columns have no entry above 1, so nothing is divided for them; squares of 1e30 would overflow.
    batch = one_batch(matrix)
    batch = batch / batch.abs().amax((-2, -1), keepdim=True).clamp(min=1.0)
    gram = torch.bmm(batch.mT, batch)
    excess = gram - identity(gram.shape[-1], gram)
    square = 1 + (excess.square().sum((-2, -1), keepdim=True) + _SLACK**2).sqrt()
    batch, gram = batch * square.rsqrt(), gram / square
    return torch.baddbmm(batch, batch, gram, beta=1.5, alpha=-0.5).reshape(matrix.shape)


@torch.no_grad()
def retracted(matrix: Tensor) -> Tensor:
    """The polar factor of a matrix that an optimiser's step has taken off the manifold.

    Two cubic steps square the distance twice. A step that went far, or other devices, where reading a number is what
    costs, take the polar factor itself.
    """
    if matrix.shape[-2] < matrix.shape[-1]:
        return retracted(matrix.mT).mT
    if matrix.device.type != "cpu":
        return minimax_polar(matrix)
    excess = matrix.mT @ matrix
    excess.diagonal(dim1=-2, dim2=-1).sub_(1)
    if float(excess.square().sum((-2, -1)).amax()) > _NEAR**2:
        return polar_factor(matrix)
    return bjorck(matrix - 0.5 * (matrix @ excess), 1)
