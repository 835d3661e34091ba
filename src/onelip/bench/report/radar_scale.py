"""Where the radar plot puts a measured value: the six metrics, their scales, and the scales in words.

    accuracies     5 v / t     with t the largest value of any method, rounded up to a multiple of 10 %
    costs          5 - log2(cost / cost of the plain network), from 0 to 5

The rim is the best that the scale can show, and outwards is better. A method's value is the mean (of costs the
geometric mean) over the sizes and data sets that all methods of the plot have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onelip.bench.published import published_epochs, published_results
from onelip.bench.report.report_table import METHOD, Column, ReportTable, percent, ratio
from onelip.bench.report.study_rows import WITHOUT_GUARANTEE, StudyResults
from onelip.bench.report.trained_models import (
    TrainedModel,
    longest_budget,
    main_memory,
    main_times,
    relative_to_plain,
)
from onelip.bench.runs.specs import NetworkSpec

RINGS = 5


@dataclass(frozen=True)
class RadarMetric:
    """One axis: the value of each method, where it lies (0 centre, 5 rim), and the scale in words."""

    name: str
    scale: str
    values: Mapping[str, float]
    positions: Mapping[str, float]
    unit: str


def study_radar(study: StudyResults, models: Sequence[TrainedModel]) -> list[RadarMetric]:
    """The metrics that the study has values for."""
    compared = longest_budget(models)
    times, memory = main_times(study), main_memory(study)
    metrics = [
        accuracy_metric("Certified accuracy", {m.network: m.certified_36.mean for m in compared if m.certified_36}),
        accuracy_metric("Accuracy", {m.network: m.accuracy.mean for m in compared if m.accuracy}),
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
    printed = [r for r in published_results() if (r.dataset, r.kernel_size, r.train_hours) == ("cifar10", 3, 24)]
    results = {NetworkSpec(method=row.key, size=row.size, dataset="cifar10"): row for row in printed if not row.failed}
    known = {(row.key, row.size): row.epochs for row in published_epochs() if row.dataset == "cifar" and row.epochs}
    most = {size: max(epochs for (_, other), epochs in known.items() if other == size) for _, size in known}
    seconds = {
        network: 1.0 / known[key] for network in results if (key := (network.method, network.size or "")) in known
    }
    return [
        accuracy_metric("Certified accuracy", {n: row.certified_accuracy_36 / 100 for n, row in results.items()}),
        accuracy_metric("Accuracy", {n: row.accuracy / 100 for n, row in results.items()}),
        cost_metric("Training time", {n: s * most[n.size or ""] for n, s in seconds.items()}, "the fastest"),
    ]


def accuracy_metric(name: str, values: Mapping[NetworkSpec, float]) -> RadarMetric:
    """An axis from 0 to the largest accuracy, rounded up."""
    means = _method_means(values, statistics.fmean)
    top = max(math.ceil(10 * max(means.values(), default=1.0) - 1e-9), 1) / 10
    scale = f"0 % at the centre, {100 * top:.0f} % at the rim"
    return RadarMetric(name, scale, means, {method: RINGS * value / top for method, value in means.items()}, "%")


def cost_metric(name: str, ratios: Mapping[NetworkSpec, float], baseline: str = "plain") -> RadarMetric:
    """An axis on which every doubling of the cost is one ring towards the centre."""
    means = _method_means({network: value for network, value in ratios.items() if value > 0}, statistics.geometric_mean)
    positions = {method: min(RINGS, max(0.0, RINGS - math.log2(value))) for method, value in means.items()}
    return RadarMetric(name, f"as {baseline} at the rim, each ring inwards is twice the cost", means, positions, "x")


def _method_means(values: Mapping[NetworkSpec, float], mean: Callable[[list[float]], float]) -> dict[str, float]:
    """Mean of each method over the places (size, data set) that all methods share."""
    places: dict[str, dict[tuple[str, str, str], float]] = {}
    for network, value in values.items():
        if network.method not in WITHOUT_GUARANTEE and network.kernel_size == 3:
            places.setdefault(network.method, {})[network.size_name, network.dataset, network.model] = value
    shared = set.intersection(*(set(own) for own in places.values())) if places else set()
    return {method: mean([own[place] for place in sorted(shared)]) for method, own in places.items()} if shared else {}


def radar_table(metrics: Sequence[RadarMetric]) -> ReportTable:
    """The values that the radar plot shows, for all methods that have any."""
    columns = [
        Column(metric.name.lower(), "[%]", show=percent, best="highest")
        if metric.unit == "%"
        else Column(metric.name.lower(), "vs. plain", show=ratio, best="lowest")
        for metric in metrics
    ]
    methods = sorted({method for metric in metrics for method in metric.values})
    return ReportTable(
        name="radar-values",
        section="overview",
        title="Values of the radar plot",
        caption="Accuracies in %, certified accuracy at radius 36/255 (Euclidean norm); costs relative to plain. Means "
        "(of costs the geometric mean) over the sizes and data sets that all methods have. Bold: the best as shown.",
        columns=(METHOD, *columns),
        rows=[(method, *(metric.values.get(method) for metric in metrics)) for method in methods],
    )
