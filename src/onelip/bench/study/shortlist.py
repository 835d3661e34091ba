"""A cheaper protocol for the long budgets, tried on the paper's published tables.

The paper trains every method for 2, 10 and 24 hours. A shortlist trains all of them for the shortest budget only, and
the best few of each data set, kernel and size for the longer ones. How much that costs is arithmetic; whether it finds
the same best three methods is asked of the published results, as printed and with the noise of another run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from onelip.bench.published import PublishedResult, published_results

SHORTLISTS = ({10: 7, 24: 6}, {10: 6, 24: 5}, {10: 5, 24: 4})
"""Hours of the longer budgets, and how many methods train for so long; from careful to cheap."""

_SHORTEST = 2

_BEST = 3


@dataclass(frozen=True)
class ShortlistTrial:
    """How a shortlist does on the published tables.

    Args:
        same_best: part of the comparisons (data set, kernel, size) with the best three of the full protocol.
        hours: of the final trainings.
        full_hours: of those of the full protocol.
        comparisons: how many there are.
    """

    same_best: float
    hours: int
    full_hours: int
    comparisons: int


def try_shortlist(
    shortlist: Mapping[int, int], noise: float = 0.0, repetitions: int = 1, seed: int = 0
) -> ShortlistTrial:
    """Compare the best three of a shortlist with those of the full protocol.

    `noise` is the standard deviation in percentage points by which certified accuracies of another run differ.
    """
    generator = random.Random(seed)
    cells: dict[tuple[str, int, str], list[PublishedResult]] = {}
    for row in published_results():
        cells.setdefault((row.dataset, row.kernel_size, row.size), []).append(row)
    budgets = {_SHORTEST, *shortlist}
    complete = [rows for rows in cells.values() if {row.train_hours for row in rows} >= budgets]
    same = hours = full_hours = 0
    for rows in complete:
        methods = sorted({row.method for row in rows})
        full_hours += sum(budgets) * len(methods)
        hours += _SHORTEST * len(methods) + sum(long * min(count, len(methods)) for long, count in shortlist.items())
        for _ in range(repetitions):
            found = {
                (row.method, row.train_hours): row.certified_accuracy_36 + generator.gauss(0.0, noise) for row in rows
            }
            same += set(_best(found, methods, max(shortlist), _BEST)) == set(_chosen(found, methods, shortlist))
    return ShortlistTrial(same / (repetitions * len(complete)), hours, full_hours, len(complete))


def _chosen(found: Mapping[tuple[str, int], float], methods: list[str], shortlist: Mapping[int, int]) -> list[str]:
    """The best three after the longest budget, of the methods that got there."""
    left, budget = methods, _SHORTEST
    for longer in sorted(shortlist):
        left, budget = _best(found, left, budget, shortlist[longer]), longer
    return _best(found, left, max(shortlist), _BEST)


def _best(found: Mapping[tuple[str, int], float], methods: list[str], budget: int, count: int) -> list[str]:
    trained = [method for method in methods if (method, budget) in found]
    return sorted(trained, key=lambda method: -found[method, budget])[:count]
