"""Shares of test images with their standard errors, and what the data can tell apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from onelip.bench.records.views import MedianTime

NORMAL_95 = 1.96
"""Standard errors to either side of a mean that make an interval of 95 %."""


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

    @property
    def half_interval(self) -> float | None:
        """Half the 95 % interval in per cent, as figures draw it."""
        return None if self.error is None else 100 * NORMAL_95 * self.error

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval in per cent."""
        half, centre = self.half_interval, 100 * self.mean
        return None if half is None else (centre - half, centre + half)

    def __sub__(self, other: Share) -> Share:
        """The difference with its standard error."""
        error = None if self.error is None or other.error is None else math.hypot(self.error, other.error)
        return Share(self.mean - other.mean, error, min(self.seeds, other.seeds))


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
        return abs(a.mean - b.mean) > NORMAL_95 * math.hypot(a.error or 0.0, b.error or 0.0)
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
