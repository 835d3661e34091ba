"""The first rows of a polar factor without the others: for a last layer of which a network uses few outputs.

With K = A A^T the first r rows of U = K^(-1/2) A are E K^(-1/2) A, E the first r unit vectors as rows. Block Lanczos
steps from E give V with orthonormal rows and a block tridiagonal T = V K V^T, and E K^(-1/2) is E_1 T^(-1/2) V up to
what the last block of E_1 T^(-1/2) tells. Whatever that is, the result has orthonormal rows:
E_1 T^(-1/2) T T^(-1/2) E_1^T = I. All of that is in float64, since K has the square of the condition number.

For the gradient G of the rows let B = G A^T. The derivative of tr(E f(K) B^T) by K is that of f in the direction E^T B,
N = V^T X W with the basis W of the steps from B: in the eigenvectors of both T's, X has the entries of E_1^T B_1 times
the divided differences f[x, y] = -1 / (x^(1/2) y^(1/2) (x^(1/2) + y^(1/2))) of f = x^(-1/2). Then
dA = K^(-1/2) E^T G + (N + N^T) A. A step costs two products with r vectors, so that all of them together are less than
one product of two matrices: few steps suffice for matrices that are an orthogonal one and others of low rank, as they
are in training. Where the steps do not converge, all eigenvectors are taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.linalg.norms import largest_magnitude
from onelip.linalg.polar import eigen_factor, eigen_gradient, polar_rows
from onelip.linalg.tensor_modes import may_cache_tensors
from onelip.linalg.verified import eigenvectors

_LARGEST_SHARE = 1 / 32
"""Rows relative to all of them: more would make the steps as expensive as all eigenvectors."""
_LOOKED_AT = (4, 8, 10, 12, 16, 20, 24, 32, 40)
"""After how many steps the result is looked at. Tensors without numbers stand for those that need the second."""
_ROWS_PER_STEP = 40
"""Of the matrix, for each of the steps that are tried: more of them take as long as all eigenvectors."""
_TOLERANCE = 1e-5
"""Of the last block of E_1 T^(-1/2), relative to the whole."""
_NOISE = 1e-12
"""Eigenvalues of K relative to the largest one, squares of the singular values that count."""


class _Krylov(NamedTuple):
    """V, V A, the eigenvectors and eigenvalues of T^(-1/2), and R with R V_1 = the vectors at first."""

    basis: Tensor
    images: Tensor
    vectors: Tensor
    inverse_roots: Tensor
    start: Tensor

    def rotated_start(self) -> Tensor:
        """The vectors at first, in the eigenvectors."""
        return self.start @ self.vectors[: len(self.start)]

    def inverse_root(self) -> Tensor:
        """Coefficients of the vectors at first times K^(-1/2)."""
        return (self.rotated_start() * self.inverse_roots) @ self.vectors.mT

    def has_converged(self) -> bool:
        """Whether the last step has added next to nothing."""
        if self.basis.is_meta:
            return len(self.basis) == _LOOKED_AT[1] * len(self.start)
        found = self.inverse_root()
        last = torch.linalg.vector_norm(found[:, -len(self.start) :])
        return bool(last <= _TOLERANCE * torch.linalg.vector_norm(found))


def _are_few(matrix: Tensor, rows: int) -> bool:
    return may_cache_tensors() and matrix.dtype == torch.float32 and rows <= _LARGEST_SHARE * len(matrix)


class _RowsByLanczos(torch.autograd.Function):
    """The first rows (rows, n) of the polar factor of a square float32 matrix.

    Keeps the matrix and the Lanczos basis; where that has not converged, all eigenvectors.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, rows: int) -> Tensor:
        scale = largest_magnitude(matrix)
        first = torch.eye(rows, len(matrix), dtype=torch.float64, device=matrix.device)
        scaled = matrix / scale
        found = _krylov(scaled.double(), first)
        kept = eigen_factor(scaled, single=True) if found is None else found
        ctx.save_for_backward(matrix, scale, *kept)
        ctx.rows, ctx.has_converged = rows, found is not None
        if found is None:
            return kept[0][:rows].clone()  # not a view, which would keep all rows
        return (found.inverse_root() @ found.images).to(matrix.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (matrix, scale, *kept), (gradient,) = ctx.saved_tensors, gradients
        if torch.is_grad_enabled():  # a second derivative goes through all rows
            factor = polar_rows.body(matrix, ctx.rows)
            return *torch.autograd.grad(factor, matrix, gradient, create_graph=True), None
        scaled = matrix / scale  # dA(A) = dA(A / s) / s
        if ctx.has_converged:
            right = _krylov(scaled.double(), (gradient @ scaled.mT).double())
            if right is not None:
                return _gradient(_Krylov(*kept), right, gradient) / scale, None
        factor, vectors, values = eigen_factor(scaled, single=True) if ctx.has_converged else kept
        whole = torch.zeros_like(matrix)
        whole[: ctx.rows] = gradient
        return eigen_gradient((factor, vectors, values), whole) / scale, None


def _gradient(left: _Krylov, right: _Krylov, gradient: Tensor) -> Tensor:
    """K^(-1/2) E^T G + (V^T X W + W^T X^T V) A as one product."""
    x, y = left.inverse_roots.unsqueeze(-1), right.inverse_roots
    differences = -(x * y).square() / (x + y).clamp(min=torch.finfo(x.dtype).tiny)
    inner = left.rotated_start().mT @ right.rotated_start() * differences
    inner = left.vectors @ inner @ right.vectors.mT
    columns = torch.cat([left.inverse_root() @ left.basis, inner.mT @ left.basis, right.basis])
    rows = torch.cat([right.images, inner.mT @ left.images])
    return columns.to(gradient.dtype).mT @ torch.cat([gradient, rows.to(gradient.dtype)])


def _most_steps(side: int) -> int:
    most = max(side // _ROWS_PER_STEP, _LOOKED_AT[1])
    return max(step for step in _LOOKED_AT if step <= most)


def _krylov(matrix: Tensor, start: Tensor) -> _Krylov | None:
    """Lanczos steps until the inverse square root has converged; None where it does not in time."""
    width, length = len(start), _most_steps(len(matrix))
    basis, images = start.new_empty(length * width, len(matrix)), start.new_empty(length * width, matrix.shape[1])
    tridiagonal = start.new_zeros(length * width, length * width)
    block, upper = _orthonormal(start, basis[:0])
    for step in range(1, length + 1):
        here, used = slice((step - 1) * width, step * width), slice(0, step * width)
        basis[here] = block
        image = torch.mm(block, matrix, out=images[here])
        tridiagonal[here, here] = image @ image.mT
        if step in _LOOKED_AT:
            if not matrix.is_meta and not bool(tridiagonal.isfinite().all()):
                return None
            values, vectors = eigenvectors(tridiagonal[used, used])
            found = _Krylov(basis[used], images[used], vectors, _inverse_roots(values), upper)
            if found.has_converged():
                return found
        if step < length:
            block, coupling = _orthonormal(image @ matrix.mT, basis[used])
            after = slice(step * width, (step + 1) * width)
            tridiagonal[here, after], tridiagonal[after, here] = coupling, coupling.mT
    return None


def _inverse_roots(values: Tensor) -> Tensor:
    """x^(-1/2), and 0 for what is noise beside the largest: zero rows of the basis have the eigenvalue 0."""
    noise = values <= _NOISE * values.amax()
    return values.masked_fill(noise, 1).rsqrt().masked_fill(noise, 0)


def _orthonormal(block: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal rows Q, orthogonal to the basis, and R with R Q = the part of the block that is.

    Once more, because rounding leaves a part of the basis in what is small. A row of Q is zero where the block has no
    such part and the arbitrary row that takes its place has none either.
    """
    first, upper = torch.linalg.qr((block - (block @ basis.mT) @ basis).mT)
    again, correction = torch.linalg.qr((first.mT - (first.mT @ basis.mT) @ basis).mT)
    is_new = correction.diagonal().abs() > 0.5
    return (again * is_new).mT, (correction @ upper).mT * is_new


ROWS = (
    Row(
        polar_rows,
        _RowsByLanczos.apply,
        "cpu",
        "without it BCOP: step 1.09 (XS), memory 1.05 (S)",
        _are_few,
        error=1e-5,
    ),
)
