"""Rows brought together: models over their seeds, and one cost per network.

A model is a network with a training budget. It may have been trained with many learning rates, in a search for one.
The one that stands for it is chosen as in the paper, by certified accuracy on the validation split, never on the
test set.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from onelip.bench.paper.published import published_results
from onelip.bench.records.durations import format_duration
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.records.views import Training, TrainResult
from onelip.bench.report.method_style import method_style, size_order
from onelip.bench.report.shares import Share, mean_share
from onelip.bench.report.study_rows import (
    WITHOUT_GUARANTEE,
    Budget,
    CountedOperations,
    MeasuredMemory,
    MeasuredTime,
    StudyResults,
    TrainedRun,
)
from onelip.protocol import DATA_SETS, RADIUS_NUMERATORS, REFERENCE

TEST_IMAGES = {name: info.test_size for name, info in DATA_SETS.items()}
"""For records and publications that do not say on how many images they were tested."""


@dataclass(frozen=True)
class TrainedModel:
    """One setting of one network and budget over its seeds."""

    network: NetworkSpec
    budget: Budget
    runs: tuple[TrainedRun, ...]

    @property
    def label(self) -> str:
        """Method and size."""
        return network_label(self.network)

    @property
    def spec(self) -> Training:
        """What all runs have in common, but for the seed."""
        return self.runs[0].spec

    @property
    def has_guarantee(self) -> bool:
        """Whether the method bounds the Lipschitz constant."""
        return self.network.method not in WITHOUT_GUARANTEE

    @property
    def is_usual(self) -> bool:
        """Whether the network is the paper's in all but method, size and kernel; others are in the full table only."""
        own = self.network
        return own == NetworkSpec(
            method=own.method, size=own.size, width=own.width, dataset=own.dataset, kernel_size=own.kernel_size
        )

    @property
    def is_compared(self) -> bool:
        """Whether figures, ranking and advice take it: the paper's network with 3 x 3 kernels."""
        return self.is_usual and self.network.kernel_size == 3

    @cached_property
    def accuracy(self) -> Share | None:
        """Share of test images that are classified correctly."""
        return self._share([run.result.test_accuracy for run in self.runs])

    @cached_property
    def certified(self) -> dict[int, Share]:
        """Certified accuracy by radius in 1/255."""
        shares = {r: self._share([run.result.certified.get(r) for run in self.runs]) for r in RADIUS_NUMERATORS}
        return {radius: share for radius, share in shares.items() if share is not None}

    @property
    def certified_36(self) -> Share | None:
        """Certified accuracy at 36/255, by which models are ranked."""
        return self.certified.get(36)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """(radius, certified accuracy), mean over the seeds; without a recorded curve the few points that are known."""
        curves = [run.result.test_certified_curve for run in self.runs if len(run.result.test_certified_curve) > 1]
        if curves and len({len(curve) for curve in curves}) == 1:
            last = len(curves[0]) - 1
            return [
                (index / last, statistics.fmean(share or 0.0 for share in at))
                for index, at in enumerate(zip(*curves, strict=True))
            ]
        start = [] if self.accuracy is None else [(0.0, self.accuracy.mean)]
        return [*start, *((radius / 255, share.mean) for radius, share in sorted(self.certified.items()))]

    @property
    def validation_certified(self) -> float | None:
        """Mean certified accuracy on the validation split."""
        return mean(run.result.validation_certified_accuracy_36 for run in self.runs)

    def _share(self, values: Iterable[float | None]) -> Share | None:
        images = self.runs[0].result.test_images or TEST_IMAGES.get(self.network.dataset)
        return mean_share([value for value in values if value is not None], images)


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what is known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def network_label(network: NetworkSpec) -> str:
    """Method and size, as figures and sentences name a network."""
    return f"{method_style(network.method).label} {network.size_name}"


def all_settings(runs: Iterable[TrainedRun]) -> list[TrainedModel]:
    """Every setting of every model, in the order of the tables."""
    groups: dict[str, list[TrainedRun]] = defaultdict(list)
    for run in runs:
        groups[run.setting].append(run)
    models = []
    for group in groups.values():
        hours = mean(run.budget.hours for run in group)
        budget = Budget(group[0].budget.name, hours, group[0].budget.epochs)
        models.append(TrainedModel(group[0].network, budget, tuple(group)))
    return sorted(models, key=_table_order)


def chosen_models(settings: Iterable[TrainedModel]) -> list[TrainedModel]:
    """One setting per model: of those with test results the best on the validation split, else the one with most seeds.

    Equals are told apart by their configuration, so that the choice is the same everywhere: clocks of the machines that
    trained them may differ.
    """

    def preference(setting: TrainedModel) -> tuple[bool, float, int, str]:
        # Trials of a search have no test results; the final training may have no validation split.
        validation = -math.inf if setting.validation_certified is None else setting.validation_certified
        return setting.accuracy is not None, validation, len(setting.runs), setting.runs[0].setting

    groups: dict[tuple[NetworkSpec, str], list[TrainedModel]] = defaultdict(list)
    for setting in settings:
        groups[setting.network, setting.budget.name].append(setting)
    return sorted((max(group, key=preference) for group in groups.values()), key=_table_order)


def _table_order(model: TrainedModel) -> tuple[object, ...]:
    network = model.network
    hours = math.inf if model.budget.hours is None else model.budget.hours
    size = size_order(network.size_name)
    return network.dataset, -network.kernel_size, hours, model.budget.name, network.method, size, network.model


def by_dataset(models: Iterable[TrainedModel]) -> dict[str, list[TrainedModel]]:
    """The models of each data set, in alphabetical order of the data sets."""
    found: dict[str, list[TrainedModel]] = defaultdict(list)
    for model in models:
        found[model.network.dataset].append(model)
    return dict(sorted(found.items()))


def longest_budget(models: Iterable[TrainedModel]) -> list[TrainedModel]:
    """What figures and ranking compare: the tested models of the paper's network, 3 x 3 kernels, longest budget.

    A budget in epochs takes each model its own time: only its name says that two are alike. Where there are budgets
    of both kinds, those in time are compared.
    """

    def length(model: TrainedModel) -> tuple[bool, float]:
        epochs = model.budget.epochs
        return epochs is None, float(model.budget.hours or 0.0) if epochs is None else float(epochs)

    tested = [model for model in models if model.is_compared and model.accuracy is not None]
    longest = {dataset: max(map(length, own)) for dataset, own in by_dataset(tested).items()}
    return [model for model in tested if length(model) == longest[model.network.dataset]]


@functools.cache
def published_models(*, failed: bool = False) -> tuple[TrainedModel, ...]:
    """The trained models that the paper printed, with one seed each; those that broke down only if asked for."""
    models = []
    for row in published_results():
        if row.failed and not failed:
            continue
        network = NetworkSpec(method=row.key, size=row.size, dataset=row.dataset, kernel_size=row.kernel_size)
        spec = Training(network=network, lr=row.learning_rate, weight_decay=row.weight_decay)
        shares = row.accuracy / 100, row.certified_accuracy_36 / 100
        result = TrainResult(test_accuracy=shares[0], test_certified_accuracy_36=shares[1])
        budget = Budget(format_duration(3600.0 * row.train_hours), float(row.train_hours))
        models.append(TrainedModel(network, budget, (TrainedRun(spec, result, budget, setting="published"),)))
    return tuple(models)


def published_result(model: TrainedModel) -> TrainedModel | None:
    """What the paper printed for the same data set, network and budget, if its training did not break down."""
    return _by_budget().get((model.network, model.budget.hours if model.budget.epochs is None else None))


@functools.cache
def _by_budget() -> dict[tuple[NetworkSpec, float | None], TrainedModel]:
    return {(model.network, model.budget.hours): model for model in published_models()}


Place = tuple[str, str, int | None]
"""Method, size and image side."""


def place_of(network: NetworkSpec) -> Place:
    """What memory and time of a network depend on: the number of classes does not change it."""
    data = DATA_SETS.get(network.dataset)
    return network.method, network.size_name, None if data is None else data.image_size


_Cost = TypeVar("_Cost", MeasuredTime, MeasuredMemory, CountedOperations)


def current(rows: Iterable[_Cost]) -> list[_Cost]:
    """The last row of each network and batch size (by generation), ordered by data set, size and method."""
    found = {(row.network, row.batch_size): row for row in rows}
    return sorted(
        found.values(), key=lambda row: (row.network.dataset, size_order(row.network.size_name), row.network.method)
    )


def main_times(study: StudyResults) -> list[MeasuredTime]:
    """Times on one hardware, the one with most of them: times of different machines do not belong in one figure."""
    hardware = Counter(row.hardware for row in study.times).most_common(1)
    own = [row for row in study.times if hardware and row.hardware == hardware[0][0]]
    return current(row for row in own if row.network.method not in WITHOUT_GUARANTEE)


def main_memory(study: StudyResults) -> list[MeasuredMemory]:
    """One row per network: measured on a GPU before predicted before counted on a CPU (the last two agree to 1 %)."""
    order = {"predicted for a GPU": -1, "predicted": 1, "cuda": 2}
    rows = sorted(study.memory, key=lambda row: order.get(row.device.split(":")[0], 0))
    return current(row for row in rows if row.network.method != "standard")


def relative_to_plain(rows: Sequence[_Cost], field: str) -> dict[NetworkSpec, float]:
    """A cost of each network in units of the same network with plain convolutions, where both are known."""

    def place(row: _Cost) -> tuple[object, ...]:
        network = row.network
        return network.size_name, network.dataset, network.kernel_size, network.model, row.batch_size

    plain = {place(row): getattr(row, field) for row in rows if row.network.method == REFERENCE}
    return {
        row.network: getattr(row, field) / plain[place(row)]
        for row in rows
        if row.network.method != REFERENCE and plain.get(place(row))
    }
