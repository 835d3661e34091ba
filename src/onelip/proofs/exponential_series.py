"""Norm of the truncated exponential p(L) = sum_(j <= m) L^j / j! of a skew-symmetric L.

Such an L is normal with eigenvalues i t, |t| <= ||L||, so that ||p(L)|| <= max |p(i t)| over |t| <= ||L||, and
q(t^2) = |p(i t)|^2 is a polynomial with rational coefficients, computed exactly. The symmetric part E of an operator
S + E that is not quite skew adds ||p(S + E) - p(S)|| <= ||E|| exp(||S|| + ||E||).
"""

from __future__ import annotations

import math
from fractions import Fraction

from onelip.proofs.layer_bound import Arithmetic, RoundingError
from onelip.proofs.proven import SAFETY, gamma

_INTERVALS = 1024
_LARGEST_EXPONENT = 700.0


def squared_modulus(terms: int) -> list[Fraction]:
    """Coefficients of q(t^2) = |sum_(j <= terms) (i t)^j / j!|^2 in powers of t^2."""
    cosine = [Fraction((-1) ** j, math.factorial(2 * j)) for j in range(terms // 2 + 1)]
    sine = [Fraction((-1) ** j, math.factorial(2 * j + 1)) for j in range((terms + 1) // 2)]
    coefficients = [Fraction(0)] * (2 * max(len(cosine), len(sine)) + 1)
    for shift, series in ((0, cosine), (1, sine)):
        for i, first in enumerate(series):
            for j, second in enumerate(series):
                coefficients[i + j + shift] += first * second
    return coefficients


def series_norm_bound(terms: int, norm: float, defect: float = 0.0) -> float:
    """Upper bound of ||p(S + E)|| for ||S + E|| <= norm, S skew and ||E|| <= defect.

    max |p(i t)| over |t| <= norm + defect is bounded on short intervals, each term of q at its larger end.
    """
    largest_t = norm + defect
    if not largest_t < 1e6:
        return math.inf
    coefficients = [float(c) for c in squared_modulus(terms)]
    largest = 0.0
    for index in range(_INTERVALS):
        low, high = (largest_t**2 * (index + step) / _INTERVALS for step in (0, 1))
        value = math.fsum(c * (high if c > 0 else low) ** k for k, c in enumerate(coefficients))
        magnitude = math.fsum(abs(c) * high**k for k, c in enumerate(coefficients))
        largest = max(largest, value + 2.0**-40 * magnitude)
    perturbed = defect * math.exp(min(norm + 2 * defect, _LARGEST_EXPONENT))
    return (math.sqrt(largest) + perturbed) * SAFETY


def series_rounding(
    arithmetic: Arithmetic, terms: int, inner: int, outputs: int, norm: float, magnitude: float
) -> RoundingError:
    """Rounding error of x + L x + L^2 x / 2 + ... by repeated products with inner products of `inner` terms.

    power_j = fl(L power_(j-1) / j) has a size and an error that the norm of L carries on; `magnitude` is that of |L|.
    """
    relative = gamma(inner + 2, arithmetic.unit_roundoff)
    size_j, error_j, total_size, total_error = 1.0, 0.0, 1.0, 0.0
    for j in range(1, terms + 1):
        error_j = (norm * error_j + relative * magnitude * (size_j + error_j)) / j
        size_j = norm * size_j / j
        total_size, total_error = total_size + size_j, total_error + error_j
    summed = gamma(terms, arithmetic.unit_roundoff) * (total_size + total_error)
    underflow = 8 * terms * (inner + 1) * (1 + magnitude) * arithmetic.tiny * math.sqrt(outputs)
    underflow *= math.exp(min(norm, _LARGEST_EXPONENT))
    return RoundingError((total_error + summed) * SAFETY + underflow, underflow)
