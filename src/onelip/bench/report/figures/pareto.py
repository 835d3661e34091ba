"""Certified accuracy against time, latency and memory, with the models that nothing beats joined by a line."""

from __future__ import annotations

from collections.abc import Sequence

from onelip.bench.report.advice import pareto_front
from onelip.bench.report.cost_table import image_size
from onelip.bench.report.figures.canvas import AXIS, ReportFigure, new_figure
from onelip.bench.report.figures.costs import plain_log_ticks
from onelip.bench.report.figures.labels import label_points
from onelip.bench.report.rows import Evidence, MemoryRow, TimeRow
from onelip.bench.report.style import BASELINES, method_style
from onelip.bench.report.summaries import ModelSummary, longest_budget, main_memory, main_times

_Costs = dict[tuple[str, str, int | None], float]


def pareto_figures(evidence: Evidence, models: Sequence[ModelSummary]) -> list[ReportFigure]:
    """Three figures for each data set, as far as there are measurements for its image size."""
    times = main_times(evidence)
    training: _Costs = {_place(row): row.epoch_seconds for row in times}
    latency: _Costs = {_place(row): 1000 * row.inference_seconds / row.key.batch_size for row in times}
    memory: _Costs = {_place(row): row.training / 2**30 for row in main_memory(evidence)}
    compared = [model for model in longest_budget(models) if model.method not in BASELINES]
    figures: list[ReportFigure] = []
    for dataset in sorted({model.dataset for model in compared}):
        own = [model for model in compared if model.dataset == dataset]
        figures += _pareto("training-time", "training time", "seconds per epoch", own, training)
        figures += _pareto("latency", "latency", "milliseconds per image", own, latency)
        figures += _pareto("memory", "training memory", "GiB at the peak of training", own, memory)
    return figures


def _place(row: TimeRow | MemoryRow) -> tuple[str, str, int | None]:
    return row.key.method, row.key.size, image_size(row.key.dataset)


def _pareto(name: str, cost_name: str, axis: str, models: list[ModelSummary], costs: _Costs) -> list[ReportFigure]:
    points = [
        (costs[place], 100 * model.certified_36, model)
        for model in models
        if model.certified_36 is not None and (place := (model.method, model.size, image_size(model.dataset))) in costs
    ]
    if len(points) < 2:
        return []
    front = pareto_front([(cost, value) for cost, value, _ in points])
    figure = new_figure()
    axes = figure.subplots()
    line = [points[index][:2] for index in front]
    axes.plot(*zip(*line, strict=True), color=AXIS, linewidth=1.2, linestyle="--", drawstyle="steps-post", zorder=1)
    for index, (cost, value, model) in enumerate(points):
        style = method_style(model.method)
        size, alpha = (9.0, 1.0) if index in front else (6.5, 0.65)
        axes.plot(cost, value, style.marker, color=style.light, markersize=size, alpha=alpha, markeredgewidth=0)
    axes.set_xscale("log")
    axes.margins(0.1)
    plain_log_ticks(axes.xaxis)
    axes.set_xlabel(axis)
    axes.set_ylabel("certified accuracy [%]")
    figure.draw_without_rendering()
    order = [*front, *(index for index in range(len(points)) if index not in front)]
    label_points(axes, [(*points[i][:2], _label(points[i][2]), method_style(points[i][2].method).light) for i in order])
    dataset, names = models[0].dataset, ", ".join(_label(points[index][2]) for index in front)
    return [
        ReportFigure(
            name=f"pareto-{name}-{dataset}",
            section="pareto",
            title=f"Certified accuracy against {cost_name}, {dataset}",
            caption=f"Certified accuracy at radius 36/255 against {cost_name}, budget {models[0].budget}. Up and to "
            "the left "
            "is better; models on the dashed line are beaten by no other.",
            alt=f"Certified accuracy against {cost_name} on {dataset}. Models that no other beats, by cost: {names}.",
            figure=figure,
        )
    ]


def _label(model: ModelSummary) -> str:
    return f"{method_style(model.method).label} {model.size}"
