"""Intervals of medians against their definition."""

from __future__ import annotations

import math
from itertools import product

from onelip.bench.measurement.throughput import interval_rank, summarise


def test_interval_covers_the_median_with_95_percent() -> None:
    """Against the definition: enumerate on which side of the median each sample falls."""
    for count in range(1, 13):
        rank = interval_rank(count)
        sides = list(product((0, 1), repeat=count))

        def misses(r: int) -> float:
            return sum(sum(s) <= r or sum(s) >= count - r for s in sides) / len(sides)  # noqa: B023

        if rank is None:
            assert misses(0) > 0.05
        else:
            assert misses(rank) <= 0.05 < misses(rank + 1)
    assert interval_rank(5) is None
    assert interval_rank(6) == 0


def test_summary() -> None:
    summary = summarise([5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 7.0])
    assert (summary.median, summary.low, summary.high, summary.count) == (4.0, 1.0, 7.0, 7)
    assert (summary.lower_quartile, summary.upper_quartile) == (2.5, 5.5)
    assert summary.relative_error == 0.75
    assert summarise([2.0]).relative_error == math.inf
