"""Accuracies with 95 % intervals: as bars in decreasing order beside the paper's results, and against costs."""

from __future__ import annotations

from collections.abc import Sequence

from onelip.bench.report.advice import pareto_front
from onelip.bench.report.figures.drawing import (
    AXIS,
    Bar,
    ReportFigure,
    draw_mark,
    horizontal_bars,
    new_figure,
    plain_log_ticks,
)
from onelip.bench.report.figures.labels import label_points
from onelip.bench.report.method_style import method_style
from onelip.bench.report.report_table import memory_unit, three_digits
from onelip.bench.report.shares import Share
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.report.trained_models import (
    Place,
    TrainedModel,
    by_dataset,
    longest_budget,
    main_memory,
    main_times,
    place_of,
    published_result,
)

_MOST_BARS = 15


def accuracy_bars(models: Sequence[TrainedModel], *, marks: bool = True) -> list[ReportFigure]:
    """Two figures for each data set, of the models with its longest budget; `marks` are the paper's results."""
    figures: list[ReportFigure] = []
    for own in by_dataset(longest_budget(models)).values():
        certified = [(model, model.certified_36) for model in own if model.has_guarantee]
        figures += _bars("certified", "Certified accuracy", certified, marks)
        figures += _bars("clean", "Accuracy", [(model, model.accuracy) for model in own], marks)
    return figures


def _bars(name: str, title: str, found: list[tuple[TrainedModel, Share | None]], marks: bool) -> list[ReportFigure]:
    known = sorted(((model, share) for model, share in found if share), key=lambda pair: -pair[1].mean)
    shown = known[:_MOST_BARS]
    if not shown:
        return []
    bars = []
    for model, share in shown:
        paper = published_result(model) if marks else None
        theirs = paper and (paper.certified_36 if name == "certified" else paper.accuracy)
        colour, mark = method_style(model.network.method).light, 100 * theirs.mean if theirs else None
        bars.append(Bar(model.label, colour, 100 * share.mean, share.interval, str(share), mark))
    radius = " at radius 36/255 (Euclidean norm)" if name == "certified" else ""
    dataset, budget = shown[0][0].network.dataset, shown[0][0].budget.words
    best = "; ".join(f"{bar.name} {bar.words} %" for bar in bars[:3])
    rest = f" The best {_MOST_BARS} of {len(known)}." if len(known) > _MOST_BARS else ""
    return [
        ReportFigure(
            name=f"bars-{name}-{dataset}",
            section="accuracy",
            title=f"{title}, {dataset}",
            caption=f"{title}{radius} on the test set after a training of {budget}. Lines are 95 % intervals; the "
            f"figures are means ± standard errors.{rest}",
            alt=f"{title} on {dataset} in decreasing order: {best}.",
            figure=horizontal_bars(bars, f"{title.lower()} [%]"),
        )
    ]


def pareto_figures(study: StudyResults, models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Certified accuracy against time, latency and memory; the models that nothing beats are joined by a line.

    Three figures for each data set, as far as there are measurements for its image size.
    """
    times, rows = main_times(study), main_memory(study)
    unit, name = memory_unit(row.training for row in rows)
    epochs = {place_of(row.network): row.seconds_per_epoch for row in times}
    latency = {place_of(row.network): 1000 * row.inference.seconds.median / row.inference_batch for row in times}
    peaks = {place_of(row.network): row.training / unit for row in rows}
    kinds = [
        ("training-time", "training time", "seconds per epoch", epochs),
        ("latency", "inference time", "milliseconds per image of a full batch", latency),
        ("memory", "training memory", f"{name} at the peak", peaks),
    ]
    compared = by_dataset(model for model in longest_budget(models) if model.has_guarantee)
    return [figure for own in compared.values() for kind in kinds for figure in _pareto(*kind, own)]


def _pareto(
    name: str, cost_name: str, axis: str, costs: dict[Place, float], models: list[TrainedModel]
) -> list[ReportFigure]:
    found = [(costs.get(place_of(model.network)), model.certified_36, model) for model in models]
    points = [(cost, share, model) for cost, share, model in found if cost and share]
    if len(points) < 2:
        return []
    front = pareto_front([(cost, share.mean) for cost, share, _ in points])
    figure = new_figure()
    axes = figure.subplots()
    line = [(points[index][0], 100 * points[index][1].mean) for index in front]
    axes.plot(*zip(*line, strict=True), color=AXIS, linewidth=1.2, linestyle="--", drawstyle="steps-post", zorder=1)
    labels = []
    for cost, share, model in points:
        style, height = method_style(model.network.method), 100 * share.mean
        words = f"{model.label}: {share} % certified, {three_digits(cost)} {axis}"
        draw_mark(axes, cost, height, style, words, share.interval, linestyle="")
        labels.append((cost, height, share.half_interval or 0.0, model.label, style.light))
    axes.set_xscale("log")
    axes.margins(0.1)
    plain_log_ticks(axes.xaxis)
    axes.set_xlabel(axis)
    axes.set_ylabel("certified accuracy at 36/255 [%]")
    figure.draw_without_rendering()
    label_points(axes, [labels[i] for i in (*front, *(i for i in range(len(points)) if i not in front))])
    dataset, names = models[0].network.dataset, ", ".join(points[index][2].label for index in front)
    return [
        ReportFigure(
            name=f"pareto-{name}-{dataset}",
            section="pareto",
            title=f"Certified accuracy against {cost_name}, {dataset}",
            caption=f"Certified accuracy at radius 36/255 (Euclidean norm) against {cost_name}, after a training of "
            f"{models[0].budget.words}. Up and to the left is better; the dashed line joins the models whose means no "
            "other beats. Vertical lines are 95 % intervals.",
            alt=f"Certified accuracy against {cost_name} on {dataset}. Models that no other beats, by cost: {names}.",
            figure=figure,
        )
    ]
