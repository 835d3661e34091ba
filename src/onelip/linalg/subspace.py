"""Orthonormal bases of column spaces, for maps that depend on the space alone, such as block reflectors I - 2 Q Q^H.

Q comes from Householder reflections: its columns are orthonormal to rounding for every V, however close those of V are
to each other. No Gram matrix is formed, whose condition number is the square of that of V.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelip.linalg.norms import largest_magnitude, smallest_divisor
from onelip.linalg.verified import orthonormal_columns, solve, solve_triangular


def subspace_basis(matrix: Tensor) -> Tensor:
    """Orthonormal columns Q (..., m, n) that span those of V (..., m, n), m >= n; of any scale, zero included.

    The gradient is that of functions of the *space*, f(Q) = f(Q U) for every unitary U; others get a wrong one.
    """
    return _SubspaceBasis.apply(matrix)  # pyright: ignore[reportReturnType]


class _SubspaceBasis(torch.autograd.Function):
    """With V = Q R and P = Q Q^H: dP = (I - P) dV R^(-1) Q^H plus its adjoint, hence the gradient (I - P) G R^(-H).

    R = Q^H V is computed from what is kept, so that a second derivative sees where it comes from; there it is a full
    matrix, because the gradient moves Q in a way that does not keep R triangular.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> Tensor:
        return orthonormal_columns(matrix / largest_magnitude(matrix))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (matrix, basis), gradient = ctx.saved_tensors, gradients[0]
        scale = largest_magnitude(matrix)
        triangle = _invertible(basis.mH @ (matrix / scale))
        normal = gradient - basis @ (basis.mH @ gradient)
        if torch.is_grad_enabled():
            result = solve(triangle, normal.mH).mH
        else:
            result = solve_triangular(triangle, normal.mH, upper=True).mH
        return torch.where(scale > smallest_divisor(scale), result / scale, 0)


def _invertible(triangle: Tensor) -> Tensor:
    """R with 1 / eps in the place of diagonal entries that are rounding noise.

    A column without a direction of its own has no direction to move in: its gradient is about zero, not infinite.
    """
    eps = torch.finfo(triangle.dtype).eps
    diagonal = triangle.diagonal(dim1=-2, dim2=-1)
    usable = torch.where(diagonal.abs() > eps, diagonal, torch.full_like(diagonal, 1 / eps))
    return triangle + torch.diag_embed(usable - diagonal)
