"""The polar factor U = A (A^H A)^(-1/2): the nearest matrix with orthonormal columns (rows, for a wide A).

On CPUs it comes from the eigenvectors of A^H A, which the backward pass needs too. On other devices, where those are
slow, from iterations that multiply A by a polynomial in A^H A: they act on singular values only, x -> x q(x^2), and
drive them to 1. All of them end below 1, so that the result is 1-Lipschitz up to rounding even where it has not
converged.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg.constants import identity
from onelip.linalg.definition import Definition
from onelip.linalg.devices import is_cpu
from onelip.linalg.minimax import Quintic, quintic_schedule
from onelip.linalg.norms import gram_norm_bound, largest_magnitude, one_batch, real_parts, scale_below_one
from onelip.linalg.tensor_modes import may_cache_tensors, rows_in_use, wants_plain_operations
from onelip.linalg.training_precision import may_approximate
from onelip.linalg.verified import eigenvectors

Iteration = Literal["eigh", "single", "minimax", "newton", "bjorck"]


def _is_wide(matrix: Tensor) -> bool:
    return matrix.shape[-2] < matrix.shape[-1]


def bjorck(matrix: Tensor, iterations: int = 20) -> Tensor:
    """Iterate A <- A (I + (I - A^H A) / 2), that is x -> 1.5 x - 0.5 x^3 on singular values.

    Needs a norm below sqrt(3) and then ends in norm at most 1: the maximum of the cubic on [0, sqrt(3)] is 1.
    Bjorck and Bowie, "An Iterative Algorithm for Computing the Best Estimate of an Orthogonal Matrix", 1971.
    """
    if _is_wide(matrix):
        return bjorck(matrix.mH, iterations).mH
    x = one_batch(matrix)
    for _ in range(iterations):
        x = torch.baddbmm(x, x, torch.bmm(x.mH, x), beta=1.5, alpha=-0.5)
    return x.reshape(matrix.shape)


def _default_newton_iterations(dtype: torch.dtype) -> int:
    # A rounding error eps in the Gram matrix is a singular value sqrt(eps), multiplied by 1.5 per step: these counts
    # keep it far below 1, so that noise (which may be a negative eigenvalue) never becomes a direction of the result.
    return 12 if torch.finfo(dtype).bits == 32 else 25


def inverse_square_root(gram: Tensor, iterations: int | None = None) -> Tensor:
    """G^(-1/2) of Hermitian positive definite matrices by the coupled Newton-Schulz iteration.

    Y_0 = G / s, Z_0 = I, then T = (3 I - Z Y) / 2, Y <- Y T, Z <- T Z: Z converges to (G / s)^(-1/2) and Y to the
    square root. s = ||G^2||_F^(1/2) >= ||G|| is proven, so the iteration converges and A Z has norm at most 1 for
    G = A^H A. Eigenvalues below about 2.25^(-iterations) of the largest one have not converged and stay too small.
    """
    iterations = _default_newton_iterations(gram.dtype) if iterations is None else iterations
    scale = gram_norm_bound(gram, 1).clamp(min=torch.finfo(gram.dtype).tiny)[..., None, None]
    one = identity(gram.shape[-1], gram)
    y, z = gram / scale, one.expand_as(gram)
    for _ in range(iterations):
        t = 1.5 * one - 0.5 * (z @ y)
        y, z = y @ t, t @ z
    return z / scale.sqrt()


# 7 and 12 steps. The last, cubic step squares the error: 1.5 tolerance^2 is below the rounding of the dtype.
_FLOAT32_SCHEDULE = quintic_schedule(lower=3e-4, tolerance=2.5e-4, cushion=0.01)
_FLOAT64_SCHEDULE = quintic_schedule(lower=1e-6, tolerance=8e-9, cushion=0.05)


_ACCELERATOR_SCHEDULE = quintic_schedule(lower=3e-3, tolerance=2.5e-4, cushion=0.01)
"""6 steps, for float32 on accelerators, where only training uses it: there, smaller singular values stay below 1."""


def _schedule(dtype: torch.dtype, steps: int | None) -> Sequence[Quintic]:
    schedule = _FLOAT32_SCHEDULE if torch.finfo(dtype).bits == 32 else _FLOAT64_SCHEDULE
    if steps is None:
        return schedule
    return schedule[:steps] + schedule[-1:] * (steps - len(schedule))


def minimax_polar(matrix: Tensor, steps: int | Sequence[Quintic] | None = None) -> Tensor:
    """Polar factor by the best odd quintics for singular values in [lower, 1], then one cubic step from below.

    `steps` counts the quintics (default 7 for float32, 12 for float64) or is their list, 3 matrix products each; values
    above 1e-3 (float32) or 1e-5 (float64) of the largest converge to rounding, smaller ones stay smaller. A quintic
    ends within 1 +- e; the cubic 1.5 x - 0.5 x^3 squares e and has its maximum 1 at x = 1.
    """
    if _is_wide(matrix):
        return minimax_polar(matrix.mH, steps).mH
    x = one_batch(scale_below_one(matrix))
    for quintic in _schedule(matrix.dtype, steps) if steps is None or isinstance(steps, int) else steps:
        x = quintic_step(x, quintic)
    return bjorck(x, 1).reshape(matrix.shape)


@Definition
def quintic_step(x: Tensor, quintic: Quintic) -> Tensor:
    """a X + X (b G + c G^2) with G = X^H X."""
    a, b, c = quintic
    gram = torch.bmm(x.mH, x)
    return torch.baddbmm(x, x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), beta=a)


def _newton_polar(matrix: Tensor, iterations: int | None) -> Tensor:
    """A (A^H A)^(-1/2); the final cubic steps undo what forming the Gram matrix loses in precision."""
    matrix = scale_below_one(matrix)
    return bjorck(matrix @ inverse_square_root(matrix.mH @ matrix, iterations), 2)


def _safe_reciprocal(values: Tensor, scale: Tensor) -> Tensor:
    """1 / x for |x| well above eps * scale, and a smooth descent to 0 below: x / (x^2 + (eps scale)^2)."""
    x = values / scale
    return x / (x.square() + torch.finfo(x.dtype).eps ** 2) / scale


def _spectrum(hermitian: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    values, vectors = eigenvectors(hermitian)
    largest = values.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    return values, vectors, largest


def _solve_in_eigenbasis(values: Tensor, vectors: Tensor, largest: Tensor, right: Tensor) -> Tensor:
    rotated = vectors.mH @ right @ vectors
    sums = values.unsqueeze(-1) + values.unsqueeze(-2)
    return vectors @ (rotated * _safe_reciprocal(sums, largest.unsqueeze(-1))) @ vectors.mH


_WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_SMALLEST_SINGULAR_VALUE = 1e-6
"""Relative to the largest one, values far below this are noise and stay small."""
_SMALLEST_IN_SINGLE = 3e-4
"""`_SMALLEST_SINGULAR_VALUE` where the Gram matrix, with the squares of the values, is in float32."""


_SMALLEST_WITHOUT_STEP = {False: 0.1, True: 0.25}
"""In float32 the factor is orthogonal up to about eps times the square of the condition number, more where the roots of
eigenvalues are taken for singular values (True, tall matrices). A cubic step follows where the smallest singular value
is below this share of the largest: the error stays near 1e-6."""

EigenFactor = tuple[Tensor, Tensor, Tensor]
"""U, V and s of A = U V diag(s) V^H, of which A^H A = V diag(s^2) V^H."""


def _is_tall(matrix: Tensor) -> bool:
    """Whether products with the Gram matrix are cheap beside those with the matrix itself."""
    return matrix.shape[-2] >= 2 * matrix.shape[-1]


def eigen_factor(matrix: Tensor, single: bool) -> EigenFactor:
    """The polar factor of float32 matrices of magnitude about 1 with at least as many rows as columns.

    In float64, squaring the condition number in A^H A costs no digit of float32; the lengths s of the columns of A V
    are more accurate than the roots of the eigenvalues. U is A V diag(s^4 + t^4)^(-1/4) V^H, t the smallest value that
    counts, so that its norm is at most 1. `single` does all of that in float32, at half the cost, where needed with a
    cubic step; each matrix decides alone, so that the result does not depend on what it is stacked with.
    """
    if not single:
        factor, vectors, values = _factor_by_columns(matrix.to(_WIDE[matrix.dtype]), _SMALLEST_SINGULAR_VALUE)
        return factor.to(matrix.dtype), vectors.to(matrix.dtype), values.to(matrix.real.dtype)
    factor, vectors, values = (_factor_by_gram if _is_tall(matrix) else _factor_by_columns)(matrix, _SMALLEST_IN_SINGLE)
    if wants_plain_operations() or not may_cache_tensors() or matrix.is_meta:
        return bjorck(factor, 1), vectors, values
    rough = values.amin(-1) < _SMALLEST_WITHOUT_STEP[_is_tall(matrix)] * values.amax(-1)
    if bool(rough.any()):
        factor[rough] = bjorck(factor[rough], 1)
    return factor, vectors, values


def _factor_by_columns(matrix: Tensor, smallest_share: float) -> EigenFactor:
    _, vectors = eigenvectors(matrix.mH @ matrix)
    columns = vectors.mT @ matrix.mT  # side by side in memory, as rows: their lengths take a tenth of the time
    values = torch.linalg.vector_norm(real_parts(columns).flatten(-2), dim=-1)
    columns = columns * _limited_inverse(values, smallest_share).unsqueeze(-1)
    return (vectors.conj() @ columns).mT, vectors, values


def _factor_by_gram(matrix: Tensor, smallest_share: float) -> EigenFactor:
    squares, vectors = eigenvectors(matrix.mH @ matrix)
    values = squares.clamp(min=0).sqrt()
    inverse_root = (vectors * _limited_inverse(values, smallest_share).unsqueeze(-2)) @ vectors.mH
    return matrix @ inverse_root, vectors, values


def _limited_inverse(values: Tensor, smallest_share: float) -> Tensor:
    """(s^4 + t^4)^(-1/4), t the given share of the largest s: 1 / s far above it, at most 1 / t below."""
    squares = values.square()
    smallest = smallest_share**2 * squares.amax(-1, keepdim=True)
    return torch.rsqrt(torch.hypot(squares, smallest) + torch.finfo(values.dtype).tiny)


def eigen_gradient(spectrum: EigenFactor, gradient: Tensor) -> Tensor:
    """dA for the gradient G of U. With R = V^H U^H G V: dA = U V (Y - R / s) V^H + G V / s V^H.

    Y_ij = (R - R^H)_ij / (s_i + s_j). The terms in 1 / s, those of the complement of U, vanish where A is square.
    """
    factor, vectors, values = spectrum
    largest = values.amax(-1, keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)
    reciprocals = _safe_reciprocal(values.unsqueeze(-1) + values.unsqueeze(-2), largest.unsqueeze(-1))
    if _is_tall(factor):  # as many products as possible with the small matrices
        rotated = vectors.mH @ (factor.mH @ gradient) @ vectors
        inverse = _safe_reciprocal(values, largest).unsqueeze(-2)
        inner = vectors @ ((rotated - rotated.mH) * reciprocals - rotated * inverse) @ vectors.mH
        return factor @ inner + gradient @ ((vectors * inverse) @ vectors.mH)
    left = (vectors.mT @ factor.mT).mT  # by columns, of which the conjugate transpose is a fast copy
    if factor.shape[-2] == factor.shape[-1]:
        rows = rows_in_use(gradient)
        rotated = left.mH @ (gradient @ vectors) if rows is None else left[rows].mH @ (gradient[rows] @ vectors)
        return left @ ((rotated - rotated.mH) * reciprocals) @ vectors.mH
    images = gradient @ vectors
    rotated, inverse = left.mH @ images, _safe_reciprocal(values, largest).unsqueeze(-2)
    inner = (rotated - rotated.mH) * reciprocals - rotated * inverse
    return (left @ inner + images * inverse) @ vectors.mH


class _PolarFactor(torch.autograd.Function):
    """The polar factor of a tall matrix, and eigenvectors, singular values and scale where it comes from those.

    Its backward pass differentiates the result alone, by the eigenvectors if there are any.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, iteration: Iteration, iterations: int | None) -> tuple[Tensor, ...]:
        if iteration == "minimax":
            return (minimax_polar(matrix, iterations),)
        if iteration == "newton":
            return (_newton_polar(matrix, iterations),)
        if iteration == "bjorck":
            return (bjorck(scale_below_one(matrix), 20 if iterations is None else iterations),)
        scale = largest_magnitude(matrix)
        return *eigen_factor(matrix / scale, iteration == "single"), scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (matrix, factor, *spectrum), gradient = ctx.saved_tensors, gradients[0]
        if not spectrum or torch.is_grad_enabled():  # a second derivative has to see where everything comes from
            return _polar_gradient(matrix, factor, gradient), None, None
        vectors, values, scale = spectrum
        # dA(A) = dA(A / s) / s, so the singular values stay in range for tiny and huge matrices.
        return eigen_gradient((factor, vectors, values), gradient) / scale, None, None


def _polar_gradient(matrix: Tensor, factor: Tensor, gradient: Tensor) -> Tensor:
    """With H = U^H A and the gradient G: H Y + Y H = U^H G - G^H U and dA = U Y + (I - U U^H) G H^(-1)."""
    # dA(A) = dA(A / s) / s, so the eigenvalues below stay in range for tiny and huge matrices.
    scale = largest_magnitude(matrix)
    product = factor.mH @ (matrix / scale)
    values, vectors, largest = _spectrum((product + product.mH) / 2)
    projected = factor.mH @ gradient
    result = factor @ _solve_in_eigenbasis(values, vectors, largest, projected - projected.mH)
    if matrix.shape[-2] > matrix.shape[-1]:
        normal = (gradient - factor @ projected) @ vectors
        inverse = _safe_reciprocal(values, largest).unsqueeze(-2)
        result = result + (normal * inverse) @ vectors.mH
    return result / scale


def trains_in_single(tensor: Tensor, training: bool) -> bool:
    """Whether polar factors are those of training on CPUs, by eigenvectors in float32."""
    return may_approximate(training) and tensor.dtype in _WIDE and is_cpu(tensor.device)


def training_polar_factor(matrix: Tensor, training: bool) -> Tensor:
    """`polar_factor`, in training from eigenvectors in float32 on CPUs."""
    return polar_factor(matrix, iteration="single" if trains_in_single(matrix, training) else None)


def training_polar(matrix: Tensor) -> Tensor:
    """`training_polar_factor` in training."""
    return training_polar_factor(matrix, True)


def polar_factor(matrix: Tensor, *, iteration: Iteration | None = None, iterations: int | None = None) -> Tensor:
    """U = A (A^H A)^(-1/2) for tall and (A A^H)^(-1/2) A for wide matrices, with norm at most 1 up to rounding.

    Real or complex, of any scale; zero gives zero. The gradient is that of the converged factor, computed without the
    iteration, so memory does not grow with the number of steps. Differentiated twice it goes through eigh, which
    needs distinct singular values.

    Args:
        matrix: (..., m, n).
        iteration: "eigh" (eigenvectors of the Gram matrix in float64, for float32 matrices), "single" (the same in
            float32, for training: off by less than 1e-6 at condition number 5, 2e-5 at 350), "minimax" (fewest
            products), "newton" (inverse square root of the Gram matrix, cheapest for very rectangular matrices;
            accurate to 1e-4 at condition number 100 in float32, 1e-10 at 1e4 in float64), or "bjorck" (the plain
            cubic iteration). By default "eigh" for float32 and "minimax" for float64 on CPUs; on accelerators "minimax"
            with the gradient of its steps, which are products alone: eigenvectors would make the host wait.
        iterations: number of steps of an iteration; the default depends on the iteration and the dtype.
    """
    if iteration is None and not is_cpu(matrix.device):
        return minimax_polar(matrix, _ACCELERATOR_SCHEDULE if torch.finfo(matrix.dtype).bits == 32 else None)
    if iteration is None:
        iteration = "eigh" if matrix.dtype in _WIDE and is_cpu(matrix.device) else "minimax"
    if iteration not in get_args(Iteration):
        raise InvalidInputError(f"iteration must be one of {', '.join(get_args(Iteration))}, not {iteration!r}")
    if iteration in ("eigh", "single") and matrix.dtype not in _WIDE:
        raise InvalidInputError(
            f"iteration={iteration!r} is for float32 and complex64, not {matrix.dtype}; use 'minimax'"
        )
    tall = matrix.mH if _is_wide(matrix) else matrix
    factor: Tensor = _PolarFactor.apply(tall, iteration, iterations)[0]  # pyright: ignore
    return factor.mH if tall is not matrix else factor


@Definition
def polar_rows(matrix: Tensor, rows: int) -> Tensor:
    """The first rows (rows, n) of the polar factor of a square float32 matrix, as training on CPUs takes it."""
    return polar_factor(matrix, iteration="single")[:rows]
