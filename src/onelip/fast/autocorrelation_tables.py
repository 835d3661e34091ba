"""The autocorrelation of a 3 x 3 kernel in 18 products, as Toom and Cook multiply polynomials.

With the taps as coefficients of P(z) = sum_t P_t z^t, along both axes, the autocorrelation is P(1/z)^T P(z). It is
evaluated at few points and interpolated, first along the columns, then along the rows. All coefficients are small
integers over one denominator, so that what cancels for a kernel of few taps cancels in floats too. Each matrix of the
result is a sum of products of unit combinations of taps with weights of at most 27 in all, where the definition has 9:
rounding errors grow no more than that.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelip.linalg.constants import cached_constant


def _opposite(products: np.ndarray) -> np.ndarray:
    """Coefficients of transposed matrices: those of the products and of their transposes change places."""
    return np.roll(products, products.shape[-1] // 2, axis=-1)


_POINTS: dict[str, tuple[list[float], list[float]]] = {
    "one": ([1, 1, 1], [1, 1, 1]),
    "minus": ([1, -1, 1], [1, -1, 1]),
    "infinity": ([1, 0, 0], [0, 0, 1]),
    "zero": ([0, 0, 1], [1, 0, 0]),
    "skew": ([1, 0, -1], [0, 1, 0]),
    "two": ([1, 1 / 2, 1 / 4], [1, 2, 4]),
}
"""Along one axis: what the taps of the left and of the right factor of a product are multiplied by."""
_OF_ITSELF, _OF_TWO = ("one", "minus", "infinity", "skew"), ("infinity", "zero", "one", "minus", "two")
PAIRS = [
    *itertools.product(("one", "minus"), ("one", "minus")),  # the same factor on both sides
    *itertools.product(("one", "minus"), ("infinity", "skew")),
    *itertools.product(("infinity", "skew"), _OF_TWO),
]
SAME_FACTOR = 4
DENOMINATOR = 48


def _of_itself(one: Any, minus: Any, infinity: Any, skew: Any) -> tuple[Any, Any, Any]:
    """Coefficients 0, 1 and 2 of p(1/z)^T p(z) for p = p_0 + p_1 z + p_2 z^2 from four products.

    p(1)^T p(1) and p(-1)^T p(-1) give c_0 + c_2 + c_2^T and c_1 + c_1^T, c_2 is p_0^T p_2, and for the product
    m = (p_0 - p_2)^T p_1, m - m^T is c_1 - c_1^T.
    """
    return (
        (one + minus) / 2 - infinity - _opposite(infinity),
        ((one - minus) / 2 + skew - _opposite(skew)) / 2,
        infinity,
    )


def _of_two(infinity: Any, zero: Any, one: Any, minus: Any, two: Any) -> dict[int, Any]:
    """Coefficients -2 to 2 of p(1/z)^T q(z) from its values at five points."""
    middle, sides = (one + minus) / 2 - infinity - zero, (one - minus) / 2
    first = (two - middle - 4 * infinity - zero / 4 - sides / 2) / 1.5
    return {-2: zero, -1: sides - first, 0: middle, 1: first, 2: infinity}


def _interpolation() -> np.ndarray:
    """Coefficients (offsets, 2 products) of all products and of their transposes in the autocorrelation."""
    units = dict(zip(PAIRS, np.eye(len(PAIRS), 2 * len(PAIRS)), strict=True))
    series: dict[str, dict[int, np.ndarray]] = {}
    for row in ("one", "minus"):
        c0, c1, c2 = _of_itself(*(units[row, column] for column in _OF_ITSELF))
        series[row] = {-2: _opposite(c2), -1: _opposite(c1), 0: c0, 1: c1, 2: c2}
    for row in ("infinity", "skew"):
        series[row] = _of_two(*(units[row, column] for column in _OF_TWO))

    def transposed(row: dict[int, np.ndarray]) -> np.ndarray:
        return np.stack([_opposite(row[-dx]) for dx in range(-2, 3)])

    stacked = {name: np.stack([row[dx] for dx in range(-2, 3)]) for name, row in series.items()}
    back = {name: transposed(row) for name, row in series.items()}
    zero = (stacked["one"] + stacked["minus"]) / 2 - stacked["infinity"] - back["infinity"]
    first = ((stacked["one"] - stacked["minus"]) / 2 + stacked["skew"] - back["skew"]) / 2
    return np.concatenate([zero[2:], first, stacked["infinity"]])


def tables(like: Tensor) -> tuple[Tensor, Tensor]:
    """Of the factors (32, 9): four of both sides, 14 left and 14 right ones; of the offsets (13, 32), times 48.

    A product of a factor with itself is symmetric and stands for its transpose, too.
    """

    def make(device: torch.device) -> tuple[Tensor, Tensor]:
        left, right = (
            np.stack([np.kron(_POINTS[row][side], _POINTS[column][side]) for row, column in PAIRS]) for side in (0, 1)
        )
        found, back = np.split(_interpolation() * DENOMINATOR, 2, axis=1)
        found[:, :SAME_FACTOR] += back[:, :SAME_FACTOR]
        factors = np.concatenate([left, right[SAME_FACTOR:]])
        offsets = np.concatenate([found, back[:, SAME_FACTOR:]], axis=1)
        make_tensor = functools.partial(torch.as_tensor, dtype=like.dtype, device=device)
        return make_tensor(factors), make_tensor(offsets)

    return cached_constant(("autocorrelation", like.dtype), like.device, make)
