"""Which method and size to use, given memory, training time and latency.

The rule, which `report/advisor.js` repeats for the page (tests compare the two):

1. A candidate is a method at one size on one data set, with a result for each training budget and two costs.
2. Of its results, those within the training time are allowed; the one with the highest certified accuracy counts.
3. It *fits* if its training memory and an allowance of 1 GiB are within the memory, and its measured inference time
   relative to the plain network of the same size is within the latency. It is *excluded* if a limit is broken. If no
   limit is known to be broken, but a cost that has a limit is not known, it is *uncertain*.
4. Candidates that fit come first, then uncertain ones, each by certified accuracy (ties: lower latency, lower memory,
   then by name). Excluded ones follow, the closest first: by the product of the factors by which they break limits.

Candidates of the advisor: measured where a study has results for the data set, else published.

Costs come from the study's own measurements. Memory that was not measured is predicted. Latency is measured or not
known; beside published results stands how fast the paper's own code evaluated them. Every figure keeps its source.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from onelip.bench.paper.published import predicted_training_memory, published_epochs, published_speeds
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.report.method_style import method_style
from onelip.bench.report.shares import Share
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.report.trained_models import (
    TrainedModel,
    all_settings,
    chosen_models,
    main_memory,
    main_times,
    place_of,
    published_models,
)
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

    @property
    def label(self) -> str:
        """Method and size."""
        return f"{method_style(self.candidate.method).label} {self.candidate.size}"

    @property
    def share(self) -> Share:
        """Certified accuracy with its standard error."""
        return Share(self.result.certified, self.result.error, 1)


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
    costs: dict[Cost, tuple[float | None, float | None]] = {
        "memory": (memory, limits.memory_bytes),
        "hours": (result.hours, limits.train_hours),
        "latency": (candidate.latency_ratio, limits.latency_ratio),
    }
    limited: dict[Cost, tuple[float | None, float]] = {
        name: (cost, limit) for name, (cost, limit) in costs.items() if limit is not None
    }
    unknown: list[Cost] = [name for name, (cost, _) in limited.items() if cost is None]
    excess: dict[Cost, float] = {
        name: cost / limit for name, (cost, limit) in limited.items() if cost is not None and cost > limit
    }
    group: Group = "excluded" if excess else "uncertain" if unknown else "fits"
    return Verdict(candidate, group, result, tuple(excess), tuple(unknown), math.prod(excess.values(), start=1.0))


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
    number, unit = _amount(text, "gb|gib|g|mb|mib|m|", "an amount of memory; write it as 24GB or 800MB")
    return number * (2**20 if unit.startswith("m") else GIB)


def parse_ratio(text: str) -> float:
    """2.0 of "2x" or "2"."""
    return _amount(text, "x?", "a latency; write it as a multiple of the plain network's, such as 2x")[0]


def _amount(text: str, units: str, what: str) -> tuple[float, str]:
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)\s*({units})", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InvalidInputError(f"{text!r} is not {what}")
    return float(match[1]), match[2]


PUBLISHED_SOURCE = "published in the paper (its code, one A100)"
MEASURED_SOURCE = "measured in this study"
NOT_MEASURED = "not measured here"


class MeasuredCosts:
    """Measurements of a study by method, size and image side."""

    def __init__(self, study: StudyResults | None) -> None:
        memory, times = ([], []) if study is None else (main_memory(study), main_times(study))
        self._memory = {place_of(row.network): row for row in memory if row.network.kernel_size == 3}
        self.times = {place_of(row.network): row for row in times if row.network.kernel_size == 3}

    def candidate(self, network: NetworkSpec, results: list[BudgetResult], source: str) -> Candidate:
        """The network with its costs and where they are from."""
        method, size, side = place = place_of(network)
        measured, time = self._memory.get(place), self.times.get(place)
        if measured is not None:
            memory = (measured.training, f"{measured.source}, batch {measured.batch_size}, this study")
        elif predicted := predicted_training_memory("gpu").get((method, size, side or 0)):
            memory = (predicted, "predicted by onelip for a GPU, batch 256")
        else:
            memory = (None, "not known")
        latency, slowness = (None, NOT_MEASURED), None
        if time is not None:
            latency = (time.inference.ratio.median, f"measured on {time.hardware}, batch {time.inference_batch}")
        elif source == PUBLISHED_SOURCE:
            slowness = _published_slowness(network)
        return Candidate(network.dataset, method, size, tuple(results), source, *memory, *latency, slowness)


def _published_slowness(network: NetworkSpec) -> float | None:
    """From the images per second in the evaluation of the paper's runs on 32 x 32 images, XS, S and M."""
    method, own_size, side = place_of(network)
    speeds = {method: speed.inference for (method, size), speed in published_speeds().items() if size == own_size}
    return max(speeds.values()) / speeds[method] if method in speeds and side == 32 else None


def measured_candidates(study: StudyResults) -> list[Candidate]:
    """All models of a study with 3 x 3 kernels that have a certified accuracy on the test set."""
    models = chosen_models(all_settings(study.trained))
    results = [(model, _result(model, model.budget.name, model.budget.hours)) for model in models]
    return _candidates(results, MeasuredCosts(study), MEASURED_SOURCE)


def published_candidates(study: StudyResults | None = None) -> list[Candidate]:
    """All models of the paper that trained to the end, with the study's costs where it has measured the network.

    Where the study has measured the network's epoch, the hours are those of the paper's epochs on that machine: the
    epochs of two hours on an A100, in proportion to the budget. Else they are hours on an A100, and called that.
    """
    costs = MeasuredCosts(study)
    in_two_hours = {(row.dataset, row.key, row.size): row.epochs for row in published_epochs()}
    results = []
    for model in published_models():
        network, hours = model.network, model.budget.hours or 0.0
        family = "cifar" if network.dataset.startswith("cifar") else network.dataset
        epochs, time = in_two_hours.get((family, network.method, network.size_name)), costs.times.get(place_of(network))
        budget = f"{hours:g} h on an A100"
        if epochs is not None and time is not None:
            count = epochs * hours / 2
            hours = count * time.seconds_per_epoch / 3600
            budget = f"{count:,.0f} epochs, {hours:,.3g} h here"
        results.append((model, _result(model, budget, hours)))
    return _candidates(results, costs, PUBLISHED_SOURCE)


def _result(model: TrainedModel, budget: str, hours: float | None) -> BudgetResult | None:
    share, accuracy = model.certified_36, model.accuracy
    return share and BudgetResult(budget, hours, accuracy and accuracy.mean, share.mean, share.error)


def _candidates(
    results: Iterable[tuple[TrainedModel, BudgetResult | None]], costs: MeasuredCosts, source: str
) -> list[Candidate]:
    groups: dict[NetworkSpec, list[BudgetResult]] = defaultdict(list)
    for model, result in results:
        if model.is_compared and model.has_guarantee and result is not None:
            groups[model.network].append(result)
    return [costs.candidate(network, own, source) for network, own in groups.items()]
