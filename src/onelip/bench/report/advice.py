"""Which method and size to use, given memory, training time and latency.

The rule, which `report/advisor.js` repeats for the page (tests compare the two):

1. A candidate is a method at one size on one data set, with a result for each training budget and two costs.
2. Of its results, those within the training time are allowed; the one with the highest certified accuracy counts.
3. It *fits* if its training memory and an allowance of 1 GiB are within the memory, and its measured inference time
   relative to the plain network of the same size is within the latency. It is *excluded* if a limit is broken. If no
   limit is known to be broken, but a cost that has a limit is not known, it is *uncertain*.
4. Candidates that fit come first, then uncertain ones, each by certified accuracy (ties: lower latency, lower memory,
   then by name). Excluded ones follow, the closest first: by the product of the factors by which they break limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from onelip.errors import InvalidInputError

GIB = 2**30

MEMORY_ALLOWANCE = GIB
"""Left free on a card for the CUDA context and scratch space; as in `onelip measure memory`."""

Group = Literal["fits", "uncertain", "excluded"]
Cost = Literal["memory", "hours", "latency"]

_GROUP_ORDER: tuple[Group, ...] = ("fits", "uncertain", "excluded")


@dataclass(frozen=True)
class BudgetResult:
    """What one training budget gave; accuracies are fractions, `hours` None where the time was not recorded.

    `error` is the standard error of the certified accuracy, None if it is not known.
    """

    budget: str
    hours: float | None
    accuracy: float | None
    certified: float
    error: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A method at one size on one data set. A cost that is not known is None; the sources say where it is from."""

    dataset: str
    method: str
    size: str
    results: tuple[BudgetResult, ...]
    result_source: str
    memory_bytes: int | None
    memory_source: str
    latency_ratio: float | None
    latency_source: str
    published_slowness: float | None = None
    """Evaluation in the paper's logs relative to its fastest method of the size: no limit is judged by it, since the
    paper's code is not onelip's and has no plain network beside it."""


@dataclass(frozen=True)
class Limits:
    """What the user has; None is no limit. Latency is relative to the plain network of the same size."""

    memory_bytes: float | None = None
    train_hours: float | None = None
    latency_ratio: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Where a candidate stands; `broken` and `unknown` name limits, `result` is the one that counts.

    `excess` is the product of cost / limit over the broken limits: 1 for a candidate that breaks none.
    """

    candidate: Candidate
    group: Group
    result: BudgetResult
    broken: tuple[Cost, ...]
    unknown: tuple[Cost, ...]
    excess: float = 1.0


def judge(candidate: Candidate, limits: Limits) -> Verdict:
    """Apply the rule to one candidate; one that breaks the time limit is shown with the shortest of its trainings."""

    def hours(result: BudgetResult) -> float:
        return math.inf if result.hours is None else result.hours

    within = [r for r in candidate.results if limits.train_hours is None or hours(r) <= limits.train_hours]
    if within:
        result = max(within, key=lambda r: (r.certified, -hours(r)))
    else:
        result = min(candidate.results, key=lambda r: (hours(r), -r.certified))
    memory = None if candidate.memory_bytes is None else float(candidate.memory_bytes + MEMORY_ALLOWANCE)
    broken: list[Cost] = []
    unknown: list[Cost] = []
    excess = 1.0
    costs: tuple[tuple[Cost, float | None, float | None], ...] = (
        ("memory", memory, limits.memory_bytes),
        ("hours", result.hours, limits.train_hours),
        ("latency", candidate.latency_ratio, limits.latency_ratio),
    )
    for name, cost, limit in costs:
        if limit is not None and cost is None:
            unknown.append(name)
        elif limit is not None and cost is not None and cost > limit:
            broken.append(name)
            excess *= cost / limit
    group: Group = "excluded" if broken else "uncertain" if unknown else "fits"
    return Verdict(candidate, group, result, tuple(broken), tuple(unknown), excess)


def rank(candidates: Iterable[Candidate], limits: Limits) -> list[Verdict]:
    """All candidates, best first."""

    def order(verdict: Verdict) -> tuple[object, ...]:
        candidate = verdict.candidate
        costs = [math.inf if c is None else c for c in (candidate.latency_ratio, candidate.memory_bytes)]
        place = (_GROUP_ORDER.index(verdict.group), verdict.excess, -verdict.result.certified)
        return *place, *costs, candidate.method, candidate.size

    return sorted((judge(candidate, limits) for candidate in candidates), key=order)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (cost, value) that no other point beats with at most its cost and at least its value."""
    front = []
    for index, (cost, value) in enumerate(points):
        beaten = any(c <= cost and v >= value and (c < cost or v > value) for c, v in points)
        if not beaten:
            front.append(index)
    return sorted(front, key=lambda i: points[i])


def parse_memory(text: str) -> float:
    """Bytes of "24GB", "24 GiB", "24" or "800MB"; a card of 24 GB has 24 GiB (2^30), so both mean the same here."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(gb|gib|g|mb|mib|m|)", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InvalidInputError(f"{text!r} is not an amount of memory; write it as 24GB or 800MB")
    return float(match[1]) * (2**20 if match[2].startswith("m") else GIB)


def parse_ratio(text: str) -> float:
    """2.0 of "2x" or "2"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*x?", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InvalidInputError(f"{text!r} is not a latency; write it as a multiple of the plain network's, such as 2x")
    return float(match[1])
