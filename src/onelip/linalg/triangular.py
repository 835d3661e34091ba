"""Orthogonalisation by a Cholesky factor with a ridge: a contraction for every matrix, cheap, with a short backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelip.linalg.constants import identity
from onelip.linalg.norms import largest_magnitude, one_batch, scale_below_one, smallest_divisor
from onelip.linalg.verified import cholesky, solve_triangular


def ridge_orthogonalise(matrix: Tensor) -> Tensor:
    """W = L^(-1) X with L L^H = X X^H + eps I for X of norm at most 1, to which any other matrix is scaled.

    W W^H = I - eps L^(-1) L^(-H), so that the norm is at most 1. A tall matrix is treated as its conjugate transpose.
    eps is (m + n) times the precision of float32 in every precision: the rounding errors of the product and of the
    factorisation are below that, and a layer computes the same function in both. Zero stays zero, without a gradient:
    the result does not depend on the scale of X, so that there is no derivative.
    """
    if matrix.shape[-2] > matrix.shape[-1]:
        return ridge_orthogonalise(matrix.mH).mH
    magnitude = largest_magnitude(matrix)
    scaled = torch.where(magnitude <= smallest_divisor(magnitude), 0, scale_below_one(matrix))
    if scaled.is_complex() and torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return _opaque_quotient(scaled, ridge(matrix))[0]
    return _TriangularQuotient.apply(scaled, ridge(matrix))[0]  # pyright: ignore


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
        return _quotient(matrix, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        matrix, ctx.eps = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(matrix, *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (matrix, quotient, factor), gradient = ctx.saved_tensors, gradients[0]
        factor = _factor(matrix, ctx.eps) if torch.is_grad_enabled() else factor
        return _quotient_gradient(quotient, factor, gradient), None


@torch.library.custom_op("onelip::triangular_quotient", mutates_args=())
def _opaque_quotient(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`_quotient` as one operator, which compilers leave as it is: inductor refuses the gradient of complex factors."""
    quotient, factor = _quotient(matrix, eps)
    return _laid_out(quotient), _laid_out(factor)


@_opaque_quotient.register_fake
def _(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return matrix.new_empty(matrix.shape), matrix.new_empty(*matrix.shape[:-1], matrix.shape[-2])


@torch.library.custom_op("onelip::triangular_quotient_backward", mutates_args=())
def _opaque_gradient(quotient: Tensor, factor: Tensor, gradient: Tensor) -> Tensor:
    return _laid_out(_quotient_gradient(quotient, factor, gradient))


@_opaque_gradient.register_fake
def _(quotient: Tensor, factor: Tensor, gradient: Tensor) -> Tensor:
    return quotient.new_empty(quotient.shape)


def _keep_results(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output)


def _opaque_backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
    return _opaque_gradient(*ctx.saved_tensors, gradient), None


_opaque_quotient.register_autograd(_opaque_backward, setup_context=_keep_results)


def _laid_out(matrix: Tensor) -> Tensor:
    return matrix.resolve_conj().contiguous()


def _quotient(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    factor = _factor(matrix, eps)
    return solve_triangular(factor, matrix, upper=False), factor


def _quotient_gradient(quotient: Tensor, factor: Tensor, gradient: Tensor) -> Tensor:
    product = gradient @ quotient.mH
    lower = product.tril(-1) + torch.diag_embed(product.diagonal(dim1=-2, dim2=-1)) / 2
    return solve_triangular(factor.mH, gradient - (lower + lower.mH) @ quotient, upper=True)


def _factor(matrix: Tensor, eps: float) -> Tensor:
    rows = one_batch(matrix)
    gram = torch.baddbmm(identity(rows.shape[-2], rows).expand(len(rows), -1, -1), rows, rows.mH, beta=eps)
    return cholesky(gram).reshape(*matrix.shape[:-1], matrix.shape[-2])
