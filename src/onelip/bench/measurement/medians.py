"""Robust summaries of repeated timings: other work on the machine makes outliers, so medians and ranks only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """Median, its confidence interval (at least 95 %, any distribution), and the quartiles as the spread."""

    median: float
    low: float
    high: float
    lower_quartile: float
    upper_quartile: float
    count: int

    @property
    def relative_error(self) -> float:
        """Half the width of the confidence interval, relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median > 0 else math.inf


def summarise(samples: Sequence[float]) -> Summary:
    """Summary of independent samples; with fewer than six the interval is infinite, because none exists."""
    ordered = sorted(samples)
    rank = interval_rank(len(ordered))
    low, high = (-math.inf, math.inf) if rank is None else (ordered[rank], ordered[-1 - rank])
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    return Summary(statistics.median(ordered), low, high, quartiles[0], quartiles[2], len(ordered))


def interval_rank(count: int) -> int | None:
    """Largest r for which the r-th smallest and r-th largest sample (from 0) enclose the median with 95 %.

    The number of samples below the median is binomial with p = 1/2, so the interval misses it with probability
    2 P(Bin(n, 1/2) <= r). None where even the extremes do not suffice.
    """
    allowed = (1 - _CONFIDENCE) / 2 * 2**count
    below, rank = 0, None
    for r in range((count + 1) // 2):
        below += math.comb(count, r)
        if below > allowed:
            break
        rank = r
    return rank
