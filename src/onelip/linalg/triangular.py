"""Orthogonalisation by a Cholesky factor with a ridge: a contraction for every matrix, cheap, with a short backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelip.linalg.constants import identity
from onelip.linalg.norms import largest_magnitude, one_batch, scale_below_one
from onelip.linalg.packed_functions import Matrices, RecomputedFunction
from onelip.linalg.verified import cholesky


def ridge_orthogonalise(matrix: Tensor) -> Tensor:
    """W = L^(-1) X with L L^H = X X^H + eps I for X of norm at most 1, to which any other matrix is scaled.

    W W^H = I - eps L^(-1) L^(-H), so that the norm is at most 1. A tall matrix is treated as its conjugate transpose.
    eps is (m + n) times the precision of float32 in every precision: the rounding errors of the product and of the
    factorisation are below that, and a layer computes the same function in both. Zero stays zero, without a gradient:
    the result does not depend on the scale of X, so that there is no derivative.
    """
    if matrix.is_complex() and torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return _opaque_orthogonalise(matrix)
    if matrix.shape[-2] > matrix.shape[-1]:
        return ridge_orthogonalise(matrix.mH).mH
    magnitude = largest_magnitude(matrix)
    scaled = torch.where(magnitude > torch.finfo(magnitude.dtype).tiny, scale_below_one(matrix), 0)
    return _TriangularQuotient.apply(scaled, ridge(matrix))[0]  # pyright: ignore


@torch.library.custom_op("onelip::ridge_orthogonalise", mutates_args=())
def _opaque_orthogonalise(matrix: Tensor) -> Tensor:
    """The same as one operator, which compilers leave as it is: inductor refuses the gradient of complex factors."""
    return ridge_orthogonalise(matrix).contiguous()


@torch.library.custom_op("onelip::ridge_orthogonalise_backward", mutates_args=())
def _opaque_gradient(matrix: Tensor, gradient: Tensor) -> Tensor:
    return RidgeQuotients().gradient(matrix, (), (), (gradient,)).contiguous()


@_opaque_orthogonalise.register_fake
@_opaque_gradient.register_fake
def _like_the_matrix(matrix: Tensor, *_: Tensor) -> Tensor:
    return torch.empty_like(matrix, memory_format=torch.contiguous_format)


def _keep_matrix(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> Tensor:
    return _opaque_gradient(*ctx.saved_tensors, gradient)


_opaque_orthogonalise.register_autograd(_backward, setup_context=_keep_matrix)


class RidgeQuotients(RecomputedFunction):
    """`ridge_orthogonalise`."""

    def plain(self, matrix: Tensor) -> Matrices:
        """The same."""
        return (ridge_orthogonalise(matrix),)


def ridge(matrix: Tensor) -> float:
    """eps for matrices of this shape."""
    return sum(matrix.shape[-2:]) * torch.finfo(torch.float32).eps


class _TriangularQuotient(torch.autograd.Function):
    """Returns W and L, so that backward need not factorise again unless a second derivative is asked for.

    With Z = L^(-1) dX, dW = Z - tril(Z W^H + W Z^H) W, where tril halves the diagonal. For the gradient G and
    M = tril(G W^H): dX = L^(-H) (G - (M + M^H) W).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        factor = _factor(matrix, eps)
        return torch.linalg.solve_triangular(factor, matrix, upper=False), factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        matrix, ctx.eps = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(matrix, *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (matrix, quotient, factor), gradient = ctx.saved_tensors, gradients[0]
        factor = _factor(matrix, ctx.eps) if torch.is_grad_enabled() else factor
        product = gradient @ quotient.mH
        lower = product.tril(-1) + torch.diag_embed(product.diagonal(dim1=-2, dim2=-1)) / 2
        inner = gradient - (lower + lower.mH) @ quotient
        return torch.linalg.solve_triangular(factor.mH, inner, upper=True), None


def _factor(matrix: Tensor, eps: float) -> Tensor:
    rows = one_batch(matrix)
    gram = torch.baddbmm(identity(rows.shape[-2], rows).expand(len(rows), -1, -1), rows, rows.mH, beta=eps)
    return cholesky(gram).reshape(*matrix.shape[:-1], matrix.shape[-2])
