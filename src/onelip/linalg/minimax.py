"""Coefficients of the polynomials that bring singular values to 1 in the fewest matrix products.

Odd quintics x -> a x + b x^3 + c x^5, each the best uniform approximation of 1 on the interval that the one before it
leaves (up to a cushion against rounding). Choosing them greedily is optimal for the composition: Amsel, Persson,
Musco and Gower, "The Polar Express: Optimal Matrix Sign Methods and Their Application to the Muon Algorithm", 2025.
"""

import numpy as np

Quintic = tuple[float, float, float]


def best_quintic(lower: float, upper: float) -> Quintic:
    """Return (a, b, c) minimising max |1 - (a x + b x^3 + c x^5)| on [lower, upper], by Remez exchange.

    The error takes its extreme value with alternating signs in four points: both ends and the two critical points,
    whose squares are the roots of a + 3 b y + 5 c y^2.
    """
    if upper - lower < 0.1:
        # The optimum tends to the Newton-Schulz quintic, and the exchange becomes ill-conditioned.
        return (15 / 8, -10 / 8, 3 / 8)
    inner = np.array([0.75 * lower + 0.25 * upper, 0.25 * lower + 0.75 * upper])
    coefficients = np.zeros(4)
    for _ in range(60):
        x = np.array([lower, *inner, upper])
        system = np.stack([x, x**3, x**5, np.array([1.0, -1.0, 1.0, -1.0])], axis=1)
        coefficients = np.linalg.solve(system, np.ones(4))
        a, b, c, _ = coefficients
        before, inner = inner, np.sqrt(np.sort(np.roots([5 * c, 3 * b, a])))
        if np.array_equal(before, inner):  # a fixed point: nothing changes any more
            break
    a, b, c, _ = (float(value) for value in coefficients)
    return (a, b, c)


def quintic_schedule(lower: float, tolerance: float, cushion: float) -> tuple[Quintic, ...]:
    """Best quintics for [lower, 1], then for the interval the previous one maps to, until it is 1 +- tolerance.

    Below its interval every polynomial increases from 0, so smaller singular values stay below 1 as well. Between its
    extremes it brings some singular values down to about the image of the lower end, where they lose digits. Each is
    therefore the best one for [max(lower, cushion * upper), upper], which hardly slows down the smallest ones.
    """
    schedule: list[Quintic] = []
    upper = 1.0
    while upper - lower > 2 * tolerance:
        a, b, c = best_quintic(max(lower, cushion * upper), upper)
        ends = np.array([lower, upper])
        images = a * ends + b * ends**3 + c * ends**5
        lower, upper = float(images[0]), float(images[1])
        schedule.append((a, b, c))
    return tuple(schedule)
