"""Multiply-accumulates of the operators that torch's flop counter does not know, or counts as if all were real.

One complex product is four real ones. Factorisations have the leading terms of the textbooks (Golub and Van Loan,
"Matrix Computations"), an FFT of N points N/2 log2 N complex butterflies. Element-wise work is not counted, as in
the comparison paper. The type of the numbers makes no difference but that: a product in float64 is one product.

An operator stands for its variants that write to a given tensor (`out=`) as well; those in place (`baddbmm_`) are
operators of their own in torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Formula = Callable[..., int]

aten = torch.ops.aten

FLOPS_PER_MAC = 2
"""torch counts a multiplication and an addition as two operations."""


def _real_products(*factors: Tensor) -> int:
    """Real products in one product of two numbers of these types."""
    return math.prod(2 if factor.is_complex() else 1 for factor in factors)


def _matrices(tensor: Tensor) -> tuple[int, int, int]:
    """How many matrices, their rows and their columns."""
    rows, columns = tensor.shape[-2:]
    return math.prod(tensor.shape[:-2]), rows, columns


def _product(left: Tensor, right: Tensor) -> float:
    count, rows, inner = _matrices(left)
    return _real_products(left, right) * count * rows * inner * right.shape[-1]


def _matrix_vector(matrix: Tensor, vector: Tensor) -> float:
    return _real_products(matrix, vector) * matrix.numel()


def _dot(left: Tensor, right: Tensor) -> float:
    return _real_products(left, right) * left.numel()


def _lu(matrix: Tensor, *_: Any) -> float:
    count, rows, columns = _matrices(matrix)
    small, large = min(rows, columns), max(rows, columns)
    return _real_products(matrix, matrix) * count * small**2 * (large - small / 3) / 2


def _substitution(matrix: Tensor, right: Tensor, *_: Any) -> float:
    """Forward and backward substitution: n^2 products for each right-hand side, which may broadcast."""
    numbers = max(right.numel(), _matrices(matrix)[0] * right.shape[-2] * right.shape[-1])
    return _real_products(matrix, right) * numbers * matrix.shape[-1]


def _of_arguments(macs: Callable[..., float], *positions: int) -> Callable[..., float]:
    """The formula with these of an operator's arguments: the tensor that a product is added to costs nothing."""
    return lambda *arguments: macs(*(arguments[position] for position in positions))


def _cubic(share: float) -> Callable[..., float]:
    """share * n^3 for square matrices."""

    def macs(matrix: Tensor, *_: Any) -> float:
        count, rows, _columns = _matrices(matrix)
        return _real_products(matrix, matrix) * count * share * rows**3

    return macs


def _svd(matrix: Tensor, _full: bool = False, compute_uv: bool = True, *_: Any) -> float:
    count, rows, columns = _matrices(matrix)
    small, large = min(rows, columns), max(rows, columns)
    share = 3 * large * small**2 + 10 * small**3 if compute_uv else 2 * large * small**2 - 2 / 3 * small**3
    return _real_products(matrix, matrix) * count * share


def _fft(signal: Tensor, dims: list[int], *_: Any, length: int | None = None) -> float:
    """2 N log2 N real products for N complex points; half of it where one side is real."""
    points = math.prod(signal.shape[d] for d in dims)
    numbers = signal.numel()
    if length is not None:  # complex to real: the last dimension holds half of a spectrum
        points, numbers = points // signal.shape[dims[-1]] * length, numbers // signal.shape[dims[-1]] * length
    share = 2 if signal.is_complex() and length is None else 1
    return share * numbers * math.log2(max(points, 1))


def _formula(macs: Callable[..., float]) -> Formula:
    """What torch's counter calls: operations, from the tensors themselves because shapes do not tell a type.

    Keyword arguments (`out`, `alpha`, `left`, `upper`, ...) never change the number of products.
    """

    def flops(*args: Any, **_: Any) -> int:
        return round(FLOPS_PER_MAC * macs(*args))

    flops._get_raw = True  # pyright: ignore[reportFunctionMemberAccess]
    return flops


FORMULAS: dict[Any, Formula] = {
    operator: _formula(macs)
    for operator, macs in {
        aten.mm: _product,
        aten.bmm: _product,
        **dict.fromkeys((aten.addmm, aten.baddbmm, aten.addbmm), _of_arguments(_product, 1, 2)),
        **dict.fromkeys((aten.addmm_, aten.baddbmm_, aten.addbmm_), _of_arguments(_product, 1, 2)),
        aten.mv: _matrix_vector,
        **dict.fromkeys((aten.addmv, aten.addmv_), _of_arguments(_matrix_vector, 1, 2)),
        aten.dot: _dot,
        aten.vdot: _dot,
        aten._linalg_solve_ex: lambda matrix, right, *_: _lu(matrix) + _substitution(matrix, right),
        aten.linalg_lu_factor_ex: _lu,
        aten.linalg_lu_solve: _of_arguments(_substitution, 0, 2),
        aten.linalg_inv_ex: _cubic(1.0),
        aten.linalg_cholesky_ex: _cubic(1 / 6),
        aten.cholesky_solve: _of_arguments(_substitution, 1, 0),
        aten.linalg_solve_triangular: lambda matrix, right, *_: _substitution(matrix, right) / 2,
        aten._linalg_eigh: lambda matrix, _="L", vectors=True: _cubic(4.5 if vectors else 2 / 3)(matrix),
        aten.linalg_qr: lambda matrix, *_: 4 * _lu(matrix),  # reflections, and the product that forms Q
        aten._linalg_svd: _svd,
        aten._fft_r2c: _fft,
        aten._fft_c2c: _fft,
        aten._fft_c2r: lambda signal, dims, _, last_size: _fft(signal, dims, length=int(last_size)),
    }.items()
}

_COSTLY_PREFIXES = ("linalg_", "_linalg_", "_fft", "fft_", "cholesky", "lu_", "triangular_solve", "_cdist")
_PRODUCTS = re.compile(r"(mm|mv|dot|matmul|linear)(_backward)?_?$|conv(?!ert)")
_CHEAP = ("linalg_vector_norm", "linalg_cross", "linalg_diagonal", "_linalg_check_errors")


def needs_formula(operator: Any) -> bool:
    """Whether counting this operator as nothing would hide work: products, matrix functions and transforms."""
    name = operator.__name__
    return name not in _CHEAP and (name.startswith(_COSTLY_PREFIXES) or _PRODUCTS.search(name) is not None)
