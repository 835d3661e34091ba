"""Figures with their uncertainty, and when two of them can be told apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Share:
    """Mean share of test images over k seeds, with its standard error (None if the number of images is not known).

        error^2 = q (1 - q) / n + s^2 / k

    The first term is the draw of the n test images. They are the same for all seeds, so that more seeds do not make
    it smaller; q is the share after adding two hits and two misses (Agresti and Coull), which keeps it above 0. The
    second is the draw of the seed, with the deviation s among the seeds; a single seed cannot tell it.
    """

    mean: float
    error: float | None
    seeds: int

    def __str__(self) -> str:
        spread = "" if self.error is None else f" ± {100 * self.error:.1f}"
        return f"{100 * self.mean:.1f}{spread}"


@dataclass(frozen=True)
class MedianTime:
    """Median of repeated measurements and its 95 % interval, which is infinite for fewer than six of them."""

    median: float
    low: float
    high: float

    @property
    def is_bounded(self) -> bool:
        """Whether there were enough measurements for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})" if self.is_bounded else f"{self.median:.2f}"


def mean_share(values: Sequence[float], images: int | None) -> Share | None:
    """The share over seeds; None without values."""
    if not values:
        return None
    mean = statistics.fmean(values)
    if images is None:
        return Share(mean, None, len(values))
    q = (images * mean + 2) / (images + 4)
    between = statistics.variance(values) / len(values) if len(values) > 1 else 0.0
    return Share(mean, math.sqrt(max(q * (1 - q), 0.0) / (images + 4) + between), len(values))


def differ(a: object, b: object) -> bool:
    """Whether the data tell two figures apart.

    Shares: by more than 1.96 standard errors of their difference, as if they were tested on different images. Both are
    tested on the same ones, which makes the true error smaller: this errs on the side of "not distinguishable".
    Timings: if their intervals do not overlap. Anything else: if it is not equal.
    """
    if isinstance(a, Share) and isinstance(b, Share):
        return abs(a.mean - b.mean) > _NORMAL_95 * math.hypot(a.error or 0.0, b.error or 0.0)
    if isinstance(a, MedianTime) and isinstance(b, MedianTime):
        return a.low > b.high or b.low > a.high
    return a != b


def centre(value: object) -> float | None:
    """The number that a figure is sorted by."""
    if isinstance(value, Share):
        return value.mean
    if isinstance(value, MedianTime):
        return value.median
    return float(value) if isinstance(value, (int, float)) else None
