"""Rows brought together: models over their seeds, and one cost per network.

A model (data set, method, size, kernel, budget) may have been trained with many learning rates, in a search for one.
The one that stands for it is chosen as in the paper, by certified accuracy on the validation split, never on the
test set.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from onelip.bench.published.ranking import RankingEntry
from onelip.bench.report.rows import Evidence, MacsRow, MemoryRow, TimeRow, TrainingRow
from onelip.bench.report.style import BASELINES, REFERENCE, size_order
from onelip.protocol import RADIUS_NUMERATORS


@dataclass(frozen=True)
class Spread:
    """Mean over seeds, and the sample standard deviation where there are at least two."""

    mean: float
    deviation: float | None
    count: int


@dataclass(frozen=True)
class ModelSummary:
    """One setting of one model over its seeds. `certified` maps radii (in 1/255) to accuracies."""

    dataset: str
    method: str
    size: str
    kernel_size: int
    budget: str
    budget_hours: float | None
    runs: tuple[TrainingRow, ...]
    accuracy: Spread | None
    certified: dict[int, Spread]
    validation_certified: float | None

    @property
    def name(self) -> tuple[str, str, str, int, str]:
        """What tells models apart."""
        return self.dataset, self.method, self.size, self.kernel_size, self.budget

    @property
    def certified_36(self) -> float | None:
        """Mean certified accuracy at 36/255, by which models are ranked."""
        return self.certified[36].mean if 36 in self.certified else None


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and deviation of the values that are there."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def all_settings(rows: Iterable[TrainingRow]) -> list[ModelSummary]:
    """Every setting of every model, in the order of the tables."""
    groups: dict[tuple[object, ...], list[TrainingRow]] = defaultdict(list)
    for row in rows:
        groups[(row.dataset, row.method, row.size, row.kernel_size, row.budget, row.setting)].append(row)
    return sorted((_summary(group) for group in groups.values()), key=_order)


def chosen_models(settings: Iterable[ModelSummary]) -> list[ModelSummary]:
    """One setting per model: of those with test results the best on the validation split, else the newest."""
    groups: dict[object, list[ModelSummary]] = defaultdict(list)
    for setting in settings:
        groups[setting.name].append(setting)
    return sorted((max(group, key=_preference) for group in groups.values()), key=_order)


def _summary(rows: list[TrainingRow]) -> ModelSummary:
    first = rows[0]
    certified = {radius: spread(row.certified.get(radius) for row in rows) for radius in RADIUS_NUMERATORS}
    validation = spread(row.validation_certified for row in rows)
    hours = spread(row.budget_hours for row in rows)
    return ModelSummary(
        dataset=first.dataset,
        method=first.method,
        size=first.size,
        kernel_size=first.kernel_size,
        budget=first.budget,
        budget_hours=None if hours is None else hours.mean,
        runs=tuple(rows),
        accuracy=spread(row.accuracy for row in rows),
        certified={radius: value for radius, value in certified.items() if value is not None},
        validation_certified=None if validation is None else validation.mean,
    )


def _preference(setting: ModelSummary) -> tuple[bool, float, str]:
    # Trials of a search have no test results; the final training may have no validation split.
    validation = -math.inf if setting.validation_certified is None else setting.validation_certified
    return setting.accuracy is not None, validation, max(row.created_at for row in setting.runs)


def _order(model: ModelSummary) -> tuple[object, ...]:
    hours = math.inf if model.budget_hours is None else model.budget_hours
    return model.dataset, -model.kernel_size, hours, model.budget, model.method, size_order(model.size)


def longest_budget(models: Sequence[ModelSummary], kernel_size: int = 3) -> list[ModelSummary]:
    """The models with the longest budget of each data set: what figures and ranking compare."""
    longest: dict[str, tuple[float, str]] = {}
    same_kernel = [model for model in models if model.kernel_size == kernel_size]
    for model in same_kernel:
        longest[model.dataset] = max(longest.get(model.dataset, (-1.0, "")), _budget_order(model))
    return [model for model in same_kernel if _budget_order(model) == longest[model.dataset]]


def _budget_order(model: ModelSummary) -> tuple[float, str]:
    # A budget in epochs takes each model its own time, so that only its name says that two are alike; where there
    # are budgets of both kinds, those in time are compared, and the tiny factor puts epochs below them.
    if model.budget.endswith("epochs"):
        return float(model.budget.split()[0]) * 1e-9, model.budget
    return model.budget_hours or 0.0, model.budget


def ranking_entries(
    models: Iterable[ModelSummary], value: Callable[[ModelSummary], float | None]
) -> list[RankingEntry]:
    """Entries of `onelip.bench.published.ranking` for the models that have the value, the plain baseline left out."""
    found = [(model, value(model)) for model in models if model.method not in BASELINES]
    return [RankingEntry(m.dataset, m.method, m.size, v) for m, v in found if v is not None]


_Row = TypeVar("_Row", TimeRow, MemoryRow, MacsRow)


def newest(rows: Iterable[_Row]) -> list[_Row]:
    """The last row of each network (records come by time), ordered by data set, size and method."""
    found = {row.key: row for row in rows}
    return sorted(found.values(), key=lambda row: (row.key.dataset, size_order(row.key.size), row.key.method))


def main_times(evidence: Evidence) -> list[TimeRow]:
    """Times on one hardware, the one with most of them: times of different machines do not belong in one figure."""
    by_hardware: dict[str, list[TimeRow]] = defaultdict(list)
    for row in evidence.times:
        by_hardware[row.hardware].append(row)
    return newest(max(by_hardware.values(), key=len)) if by_hardware else []


def main_memory(evidence: Evidence) -> list[MemoryRow]:
    """One row per network: measured on a GPU before predicted before counted on a CPU (the last two agree to 1 %)."""
    return newest(sorted(evidence.memory, key=lambda row: _SOURCE_ORDER.get(row.source.split()[-1][:4], 0)))


_SOURCE_ORDER = {"cpu": 0, "pred": 1, "cuda": 2}


def memory_ratios(rows: Sequence[MemoryRow]) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(method, size, data set) to the ratios of training and inference memory to the plain network's."""
    plain = {(r.key.size, r.key.dataset, r.key.batch_size): r for r in rows if r.key.method == REFERENCE}
    ratios = {}
    for row in rows:
        key = row.key
        base = plain.get((key.size, key.dataset, key.batch_size))
        if base is not None and key.method != REFERENCE:
            ratios[key.method, key.size, key.dataset] = (row.training / base.training, row.inference / base.inference)
    return ratios
