"""Radar plots: one small panel per method, with the numbers beside the axes.

An axis shows the rank among n methods, from 1 (worst) to 5 (best), as in the paper:

    5 - 4 (rank - 1) / (n - 1),    rank = 1 + number of methods that are strictly better

A method's value is the mean (of costs the geometric mean) over the sizes and data sets that all methods have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.projections.polar import PolarAxes

from onelip.bench.paper.published import published_epochs
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.report.figures.drawing import GRID, ReportFigure, new_figure, tell
from onelip.bench.report.findings import times_note, trainings_are_comparable
from onelip.bench.report.method_style import method_style
from onelip.bench.report.report_table import METHOD, Column, ReportTable, percent, ratio
from onelip.bench.report.study_rows import WITHOUT_GUARANTEE, StudyResults
from onelip.bench.report.trained_models import (
    TrainedModel,
    longest_budget,
    main_memory,
    main_times,
    published_models,
    relative_to_plain,
)

RINGS = 5
_COLUMNS = 4
_LEAST_METRICS = 3
_SCALE = (
    "Each axis ranks these methods from 1 (the worst) to 5 (the best, at the rim), as the paper's figure does. Beside "
    "it stand the value and, after #, the rank; ranks go by order alone, even where differences may be chance."
)
_PAPERS_COSTS = (
    "From the paper's tables for CIFAR-10 after 24 hours on an A100; training time is relative to the fastest "
    "method of each size, since the paper gives none for a plain network."
)


@dataclass(frozen=True)
class RadarMetric:
    """One axis: the value of each method, in % (more is better) or as a multiple x of plain (less is)."""

    name: str
    values: Mapping[str, float]
    unit: str

    @property
    def is_share(self) -> bool:
        """Whether more is better."""
        return self.unit == "%"

    def rank(self, method: str) -> int:
        """1 for the best; equal values have equal ranks."""
        own = self.values[method]
        return 1 + sum(value > own if self.is_share else value < own for value in self.values.values())

    def position(self, method: str) -> float:
        """From ring 1 for the worst to the rim for the best."""
        return RINGS - (RINGS - 1) * (self.rank(method) - 1) / max(len(self.values) - 1, 1)

    def shown(self, method: str) -> str:
        """The value."""
        value = self.values[method]
        return f"{100 * value:.1f} %" if self.is_share else f"{value:.2f}x"


def accuracy_metric(name: str, values: Mapping[NetworkSpec, float]) -> RadarMetric:
    """An axis of accuracies."""
    shared = _shared_places(values)
    return RadarMetric(name, {method: statistics.fmean(own) for method, own in shared.items()}, "%")


def cost_metric(name: str, ratios: Mapping[NetworkSpec, float]) -> RadarMetric:
    """An axis of costs: less is better."""
    shared = _shared_places({network: value for network, value in ratios.items() if value > 0})
    return RadarMetric(name, {method: statistics.geometric_mean(own) for method, own in shared.items()}, "x")


def _shared_places(values: Mapping[NetworkSpec, float]) -> dict[str, list[float]]:
    """Values of each method at the places (size, data set) that all methods share."""
    places: dict[str, dict[tuple[str, str, str], float]] = {}
    for network, value in values.items():
        if network.method not in WITHOUT_GUARANTEE and network.kernel_size == 3:
            places.setdefault(network.method, {})[network.size_name, network.dataset, network.model] = value
    shared = set.intersection(*(set(own) for own in places.values())) if places else set()
    return {method: [own[place] for place in sorted(shared)] for method, own in places.items()} if shared else {}


def study_radar(study: StudyResults, models: Sequence[TrainedModel]) -> list[RadarMetric]:
    """The metrics that the study has values for, but for those that other programs disturbed: an axis ranks."""
    times, memory = [] if times_note(study) else main_times(study), main_memory(study)
    metrics = [
        *(_accuracy_metrics(longest_budget(models)) if trainings_are_comparable(study) else ()),
        cost_metric("Training time", {row.network: row.training.ratio.median for row in times}),
        cost_metric("Inference time", {row.network: row.inference.ratio.median for row in times}),
        cost_metric("Training memory", relative_to_plain(memory, "training")),
        cost_metric("Inference memory", relative_to_plain(memory, "inference")),
    ]
    return [metric for metric in metrics if metric.values]


def published_radar() -> list[RadarMetric]:
    """The same from the paper's tables of CIFAR-10: accuracies after 24 hours, training time from epochs in two hours.

    The paper has no epochs of a plain network: training time is relative to the fastest method of each size.
    """
    shown = [m for m in published_models() if m.is_compared and (m.network.dataset, m.budget.hours) == ("cifar10", 24)]
    epochs = {(row.key, row.size): row.epochs for row in published_epochs() if row.dataset == "cifar" and row.epochs}
    most = {size: max(own for (_, other), own in epochs.items() if other == size) for _, size in epochs}
    networks = {(model.network.method, model.network.size_name): model.network for model in shown}
    times = {networks[key]: most[key[1]] / own for key, own in epochs.items() if key in networks}
    return [*_accuracy_metrics(shown), cost_metric("Training time", times)]


def _accuracy_metrics(models: Sequence[TrainedModel]) -> list[RadarMetric]:
    return [
        accuracy_metric("Certified accuracy", {m.network: m.certified_36.mean for m in models if m.certified_36}),
        accuracy_metric("Accuracy", {m.network: m.accuracy.mean for m in models if m.accuracy}),
    ]


def radar_figures(metrics: Sequence[RadarMetric]) -> list[ReportFigure]:
    """The study's radar, if at least three metrics have values for some method, and the paper's beside it."""
    figures = study_figure("Measured values at a glance", metrics)
    return [*figures, *published_figure("The paper's values, ranked in the same way")] if figures else []


def study_figure(title: str, metrics: Sequence[RadarMetric]) -> list[ReportFigure]:
    """The study's radar plot, of at least three metrics, as a list; else an empty one."""
    return _figure("radar", title, metrics, "Costs are relative to plain.")


def published_figure(title: str) -> list[ReportFigure]:
    """The paper's radar plot."""
    return _figure("radar-published", title, published_radar(), _PAPERS_COSTS)


def _figure(name: str, title: str, metrics: Sequence[RadarMetric], costs: str) -> list[ReportFigure]:
    methods = sorted(set.intersection(*(set(metric.values) for metric in metrics))) if metrics else []
    if len(metrics) < _LEAST_METRICS or not methods:
        return []
    metrics = [replace(metric, values={method: metric.values[method] for method in methods}) for metric in metrics]
    rows, columns = -(-len(methods) // _COLUMNS), min(_COLUMNS, len(methods))
    figure = new_figure(2.9 * columns, 2.8 * rows)
    for place, method in enumerate(methods):
        axes = figure.add_subplot(rows, columns, place + 1, projection="polar")
        assert isinstance(axes, PolarAxes)
        _panel(axes, method, metrics)
    best = "; ".join(
        f"{metric.name.lower()}: {method_style(min(methods, key=metric.rank)).label}" for metric in metrics
    )
    alt = f"One radar plot per method with {len(metrics)} metrics. Best in {best}."
    return [ReportFigure(name, "overview", title, f"{_SCALE} {costs}", alt, figure)]


def _panel(axes: PolarAxes, method: str, metrics: Sequence[RadarMetric]) -> None:
    style = method_style(method)
    angles = [2 * math.pi * index / len(metrics) for index in range(len(metrics))]
    positions = [metric.position(method) for metric in metrics]
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_ylim(0, RINGS)
    axes.set_yticks(range(1, RINGS + 1), [str(ring) for ring in range(1, RINGS + 1)], fontsize=6)
    axes.set_rlabel_position(180 / len(metrics))  # half-way between two axes
    axes.set_xticks(angles, [""] * len(angles))
    for angle, metric in zip(angles, metrics, strict=True):
        # Written by hand: labels of the axis are centred, and those at the sides would lie on the plot.
        side, name = round(math.sin(angle), 6), metric.name.lower()
        words = [name, f"{metric.shown(method)} #{metric.rank(method)}"]
        if side:  # narrow
            words = [*name.split(), *words[1].rsplit(" ", 1)]
        axes.text(
            angle,
            RINGS + 0.35,
            "\n".join(words),
            ha="left" if side > 0 else "right" if side < 0 else "center",
            va="center" if side else "bottom" if math.cos(angle) > 0 else "top",
            fontsize=7.5,
        )
    axes.grid(color=GRID)
    axes.spines["polar"].set_color(GRID)
    ring, outline = [*angles, angles[0]], [*positions, positions[0]]
    axes.fill(ring, outline, color=style.light, alpha=0.28, linewidth=0)
    axes.plot(ring, outline, color=style.light, linewidth=2, clip_on=False)
    for angle, position, metric in zip(angles, positions, metrics, strict=True):
        mark = axes.scatter(angle, position, color=style.light, s=16, zorder=3, clip_on=False)
        tell(mark, f"{style.label}, {metric.name.lower()}: {metric.shown(method)} #{metric.rank(method)}")
    axes.set_title(style.label, pad=26)


def radar_table(metrics: Sequence[RadarMetric]) -> ReportTable:
    """The values that the radar plot shows, for all methods that have any."""
    columns = [
        Column(
            metric.name.lower(),
            "[%]" if metric.is_share else "vs. plain",
            percent if metric.is_share else ratio,
            best="highest" if metric.is_share else "lowest",
            of=metric.values.get,
        )
        for metric in metrics
    ]
    return ReportTable.of_items(
        sorted({method for metric in metrics for method in metric.values}),
        name="radar-values",
        section="overview",
        title="Values of the radar plot",
        caption="Accuracies in %, certified accuracy at radius 36/255 (Euclidean norm); costs relative to plain. Means "
        "(of costs the geometric mean) over the sizes and data sets that all methods have. Bold: the best as shown.",
        columns=(replace(METHOD, of=lambda method: method), *columns),
    )
