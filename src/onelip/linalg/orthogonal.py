"""Closed forms of orthogonal matrices: the Cayley transform and the exponential of a skew matrix."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.linalg.constants import cached_constant, identity
from onelip.linalg.definition import Definition
from onelip.linalg.devices import is_cpu
from onelip.linalg.norms import frobenius_norm, one_batch, real_parts
from onelip.linalg.tensor_modes import may_cache_tensors, rows_in_use, wants_plain_operations
from onelip.linalg.verified import inverse
from onelip.linalg.xla_forms import divided


def _in_limits(matrix: Tensor, limit: float) -> tuple[Tensor, float]:
    """X and a number f, the matrix scaled down to norm `limit` being f X: itself and 1, where no norm is larger.

    Else X has Frobenius norm at most 1: divided by `limit`, or by its norm where that is larger.
    """
    norm = _limiting_norm(matrix)
    if all_within(norm, limit):
        return matrix, 1.0
    return matrix / norm.clamp(min=limit)[..., None, None], limit


def all_within(norm: Tensor, limit: float) -> bool:
    """Whether no norm is above the limit, where the program may look. Tensors without numbers stand for usual ones."""
    if wants_plain_operations() or not is_cpu(norm.device) or not may_cache_tensors():
        return False
    return norm.is_meta or not bool((norm > limit).any())


def _limiting_norm(matrix: Tensor) -> Tensor:
    """The Frobenius norm; on accelerators in one kernel, infinite where the square overflows, which limits to zero.

    On CPUs the careful form, which divides all numbers first, is for norms of which the square overflows.
    """
    norm = torch.linalg.vector_norm(real_parts(matrix), dim=(-3, -2, -1))
    if not is_cpu(matrix.device) or all_within(norm, torch.finfo(norm.dtype).max):
        return norm
    return frobenius_norm(matrix)


def _limit_gradient(matrix: Tensor, gradient: Tensor, limit: float) -> Tensor:
    """Gradient of f W, f the factor down to the norm `limit`, without the part along W where that norm is fixed."""
    norm = _limiting_norm(matrix)
    if all_within(norm, limit):
        return gradient
    norm = norm[..., None, None]
    unit = matrix / norm.clamp(min=limit)
    along = (unit.conj() * gradient).real.sum((-2, -1), keepdim=True)
    fixed = torch.where(norm > limit, along * unit, 0)
    return (gradient - fixed) * (limit / norm.clamp(min=limit))


def cayley(matrix: Tensor) -> Tensor:
    """Isometry from an unconstrained matrix W = [U; V] (..., m, n) by the Cayley transform.

    With A = U - U^H + V^H V, Q = [(I - A)(I + A)^(-1); -2 V (I + A)^(-1)] has orthonormal columns; V is empty for a
    square matrix, and a wide matrix is treated as its conjugate transpose. Every U and V give an isometry, but rounding
    grows with the condition number 1 + ||A|| of I + A, so U and V are scaled down where the Frobenius norm of U or
    the square of that of V exceeds about eps^(-1/2) / 64 (64 for float32, 2^20 for float64).
    """
    if matrix.shape[-2] < matrix.shape[-1]:
        return cayley(matrix.mH).mH
    return _Cayley.apply(matrix)  # pyright: ignore[reportReturnType]


class _Cayley(torch.autograd.Function):
    """Keeps W and Q only: (I + A)^(-1) = (Q_1 + I) / 2 for the upper block Q_1, so that backward needs no solve.

    With Z = (I + A)^(-1), Q_1 = 2 Z - I and Q_2 = -2 V Z. For gradients G_1, G_2: dZ = 2 G_1 - 2 V^H G_2 and
    dA = -Z^H dZ Z^H; then dU = dA - dA^H and dV = V (dA + dA^H) - 2 G_2 Z^H.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> Tensor:
        columns, limit = matrix.shape[-1], _cayley_limit(matrix)
        one = identity(columns, matrix)
        upper, factor = _in_limits(matrix[..., :columns, :], limit)
        shifted = torch.add(one, upper - upper.mH, alpha=factor)
        if matrix.shape[-2] == columns:
            return _twice_without_identity(inverse(shifted))
        lower, root = _in_limits(matrix[..., columns:, :], math.sqrt(limit))
        v = one_batch(lower)
        shifted = torch.baddbmm(one_batch(shifted), v.mH, v, alpha=root**2)
        inverses = inverse(shifted)
        below = torch.baddbmm(v, v, inverses, beta=0, alpha=-2 * root)
        return torch.cat([_twice_without_identity(inverses), below], dim=-2).view(matrix.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        matrix, isometry = ctx.saved_tensors
        return cayley_gradient(matrix, isometry, gradients[0])


def _twice_without_identity(matrix: Tensor) -> Tensor:
    """2 Z - I, in one pass."""

    def make(device: torch.device) -> Tensor:
        return -torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=device)

    minus_one = cached_constant(("minus identity", matrix.shape[-1], matrix.dtype), matrix.device, make)
    return torch.add(minus_one, matrix, alpha=2)


def cayley_gradient(matrix: Tensor, isometry: Tensor, gradient: Tensor) -> Tensor:
    """Gradient of a W with at least as many rows as columns, given Q and its gradient."""
    columns = matrix.shape[-1]
    return gradient_of_blocks(
        matrix, isometry[..., :columns, :], gradient[..., :columns, :], gradient[..., columns:, :]
    )


def gradient_of_blocks(matrix: Tensor, upper: Tensor, above: Tensor, below: Tensor) -> Tensor:
    """`cayley_gradient`, given the block Q_1 of Q and the gradients of both blocks: Q_2 is not needed."""
    columns, limit = matrix.shape[-1], _cayley_limit(matrix)
    rows = rows_in_use(above)
    above = one_batch(above)
    double = one_batch(upper) + identity(columns, matrix)  # 2 Z

    def to_upper(to_a: Tensor) -> Tensor:
        part = matrix[..., :columns, :]
        return _limit_gradient(part, ((to_a.mH - to_a) / 2).reshape(part.shape), limit)

    if matrix.shape[-2] == columns:
        if rows is not None:
            return to_upper(torch.bmm(double[:, rows].mH, torch.bmm(above[:, rows], double.mH)))
        return to_upper(torch.bmm(torch.bmm(double.mH, above), double.mH))  # of -2 dA
    below = one_batch(below)
    lower, root = _in_limits(one_batch(matrix[..., columns:, :]), math.sqrt(limit))
    above = torch.baddbmm(above, lower.mH, below, alpha=-root)
    to_a = torch.bmm(torch.bmm(double.mH, above), double.mH)
    to_lower = torch.baddbmm(torch.bmm(below, double.mH), lower, to_a + to_a.mH, beta=-1, alpha=-root / 2)
    lower_part = matrix[..., columns:, :]
    to_lower = _limit_gradient(lower_part, to_lower.reshape(lower_part.shape), math.sqrt(limit))
    return torch.cat([to_upper(to_a), to_lower], dim=-2)


def lower_block(matrix: Tensor, upper: Tensor) -> Tensor:
    """The block Q_2 = -V (Q_1 + I) of the `cayley` of [U; V], given the block Q_1: one product, outside autograd."""
    lower, root = _in_limits(one_batch(matrix[..., matrix.shape[-1] :, :]), math.sqrt(_cayley_limit(matrix)))
    double = one_batch(upper) + identity(matrix.shape[-1], matrix)
    return torch.baddbmm(lower, lower, double, beta=0, alpha=-root).view(*matrix.shape[:-2], *lower.shape[-2:])


def _cayley_limit(matrix: Tensor) -> float:
    """About eps^(-1/2) / 64, a power of 4: dividing by it, or by its root, rounds nothing."""
    return 4.0 ** round(math.log(torch.finfo(matrix.dtype).eps ** -0.5 / 64, 4))


def skew_kernel(kernel: Tensor) -> Tensor:
    """Kernel of the skew part (T - T^T) / 2 of a convolution T with kernel (..., c, c, kh, kw), kh and kw odd.

    The adjoint has the kernel with channels exchanged and both spatial axes flipped. With the factor 1/2 the map is
    a projection: it leaves skew kernels alone and never increases the norm. (SOC's original code omits the 1/2.)
    """
    out_channels, in_channels, height, width = kernel.shape[-4:]
    if out_channels != in_channels or height % 2 == 0 or width % 2 == 0:
        raise InvalidInputError(
            f"a skew kernel needs equal channels and odd sizes, not {out_channels}, {in_channels}, {height} x {width}"
        )
    return (kernel - kernel.transpose(-4, -3).flip(-2, -1)) / 2


def skew_exponential(matrix: Tensor, degree: int | None = None) -> Tensor:
    """exp(A) of skew-Hermitian matrices of norm at most 1, by the Taylor polynomial of the given degree.

    The eigenvalues i t of A become p(i t), and |p(i t)| <= 1 near 0 only if the degree is 0 or 3 modulo 4: other
    degrees are refused, because they expand. Degrees 3, 7, ..., 23 contract up to norm 1.6, degree 4 up to 2.8 and
    8, 12, ..., 28 up to 3.2. The default (12 for float32, 20 for float64) is exact to rounding for norm 1, with 5 and 7
    matrix products (Paterson and Stockmeyer: a polynomial in A^q with polynomials of degree < q as coefficients).
    """
    if degree is None:
        degree = 12 if torch.finfo(matrix.dtype).bits == 32 else 20
    if degree < 3 or degree % 4 not in (0, 3):
        raise InvalidInputError(f"degree must be 3, 4, 7, 8, 11, 12, ... (0 or 3 modulo 4), not {degree}")
    if degree == 8:
        return _taylor_of_degree_8(matrix)
    block = max(2, math.isqrt(degree))
    powers = [torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device), matrix]
    while len(powers) <= block:
        powers.append(powers[-1] @ matrix)
    # The highest block may use A^q itself, which saves a product when q divides the degree.
    start = (degree - 1) // block * block
    result = _taylor_block(powers, start, degree)
    while start > 0:
        result = powers[block] @ result + _taylor_block(powers, start - block, start - 1)
        start -= block
    return result


_ROOT = math.sqrt(177)
_X1, _X2, _X3 = (1 + _ROOT) / 132, (1 + _ROOT) / 528, 2 / 3
_X4, _X5 = (29 * _ROOT - 271) / 210, 11 * (_ROOT - 1) / 840
_X6, _X7 = 11 * (_ROOT - 9) / 3360, (89 - _ROOT) / 2240
_Y2 = (857 - 58 * _ROOT) / 630
"""Coefficients of Bader, Blanes and Casas, "Computing the Matrix Exponential with an Optimized Taylor Polynomial
Approximation", 2019."""


SUMS = ((1, _Y2 + _X4 * _X3, _X4), (0, _X3, 1), (_X5 / _X7, _X6 / _X7, 1))
"""Coefficients of A, A^2 and A4 in the three sums of `_taylor_of_degree_8`."""


@Definition
def sums_of_powers(a: Tensor, square: Tensor, fourth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A + (y2 + x4 x3) A^2 + x4 A4,   x3 A^2 + A4   and   (x5 A + x6 A^2) / x7 + A4."""
    low = torch.add(a, square, alpha=SUMS[0][1]).add_(fourth, alpha=SUMS[0][2])
    right = torch.add(fourth, square, alpha=SUMS[2][1]).add_(a, alpha=SUMS[2][0])
    return low, torch.add(fourth, square, alpha=SUMS[1][1]), right


def _taylor_of_degree_8(matrix: Tensor) -> Tensor:
    """sum_(j <= 8) A^j / j! in three products in place of four.

    A4 = A^2 (x1 A + x2 A^2), then I + A + y2 A^2 + (x3 A^2 + A4)(x4 I + x5 A + x6 A^2 + x7 A4), x4 I multiplied out.
    """
    a = one_batch(matrix)
    square = torch.bmm(a, a)
    fourth = torch.baddbmm(square, square, torch.add(square, a, alpha=_X1 / _X2), beta=0, alpha=_X2)
    low, left, right = sums_of_powers(a, square, fourth)
    result = torch.baddbmm(low, left, right, alpha=_X7)
    result.diagonal(dim1=-2, dim2=-1).add_(1)
    return result.reshape(matrix.shape)


def skew_exponential_rows(rows: Tensor, degree: int | None = None) -> Tensor:
    """First m rows (..., m, n) of exp(A) for A = [[S, B], [-B^T, 0]] of norm at most 1, given by [S B] with a skew S.

    They are orthonormal, and for m < n every matrix with orthonormal rows is of this form, if A may be large. The
    Taylor polynomial is that of `skew_exponential`, applied to m rows: each power takes about m^2 n multiplications,
    never n^3.
    """
    if degree is None:
        degree = 12 if torch.finfo(rows.dtype).bits == 32 else 20
    height, width = rows.shape[-2:]
    power = torch.eye(height, width, dtype=rows.dtype, device=rows.device).expand_as(rows)
    total = power
    for index in range(1, degree + 1):
        back = power[..., height:] @ rows[..., height:].mT
        power = (power[..., :height] @ rows - F.pad(back, (0, width - height))) / index
        total = total + power
    return total


def _taylor_block(powers: list[Tensor], first: int, last: int) -> Tensor:
    """Return sum_{j = first..last} A^(j - first) / j!."""
    result = divided(powers[0], float(math.factorial(first)))
    for j in range(first + 1, last + 1):
        result = result + divided(powers[j - first], float(math.factorial(j)))
    return result
