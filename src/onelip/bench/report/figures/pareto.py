"""Certified accuracy against time, latency and memory, with the models that nothing beats joined by a line."""

from __future__ import annotations

from collections.abc import Sequence

from onelip.bench.published.predicted_costs import IMAGE_SIZES
from onelip.bench.report.advice import pareto_front
from onelip.bench.report.figures.cost_lines import plain_log_ticks
from onelip.bench.report.figures.direct_labels import label_points
from onelip.bench.report.figures.drawing import AXIS, ReportFigure, line_look, new_figure, tell
from onelip.bench.report.method_style import method_style
from onelip.bench.report.report_table import memory_unit, three_digits
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.report.trained_models import TrainedModel, by_dataset, longest_budget, main_memory, main_times
from onelip.bench.runs.specs import NetworkSpec

_Costs = dict[tuple[str, str, int | None], float]


def pareto_figures(study: StudyResults, models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Three figures for each data set, as far as there are measurements for its image size."""
    times, rows = main_times(study), main_memory(study)
    unit, name = memory_unit(row.training for row in rows)
    latency = {_place(row.network): 1000 * row.inference.seconds.median / row.batch_size for row in times}
    kinds: list[tuple[str, str, str, _Costs]] = [
        ("training-time", "training time", "seconds per epoch", {_place(r.network): r.epoch_seconds for r in times}),
        ("latency", "inference time", "milliseconds per image of a full batch", latency),
        (
            "memory",
            "training memory",
            f"{name} at the peak",
            {_place(row.network): row.training / unit for row in rows},
        ),
    ]
    compared = by_dataset(model for model in longest_budget(models) if model.has_guarantee)
    return [figure for own in compared.values() for kind in kinds for figure in _pareto(*kind, own)]


def _place(network: NetworkSpec) -> tuple[str, str, int | None]:
    return network.method, network.size_name, IMAGE_SIZES.get(network.dataset)


def _pareto(name: str, cost_name: str, axis: str, costs: _Costs, models: list[TrainedModel]) -> list[ReportFigure]:
    found = [(costs.get(_place(model.network)), model.certified_36, model) for model in models]
    points = [(cost, share, model) for cost, share, model in found if cost and share]
    if len(points) < 2:
        return []
    front = pareto_front([(cost, share.mean) for cost, share, _ in points])
    figure = new_figure()
    axes = figure.subplots()
    line = [(points[index][0], 100 * points[index][1].mean) for index in front]
    axes.plot(*zip(*line, strict=True), color=AXIS, linewidth=1.2, linestyle="--", drawstyle="steps-post", zorder=1)
    for cost, share, model in points:
        style = method_style(model.network.method)
        if share.error is not None:
            axes.errorbar(
                cost, 100 * share.mean, yerr=196 * share.error, ecolor=style.light, elinewidth=0.9, fmt="none"
            )
        (mark,) = axes.plot(cost, 100 * share.mean, **line_look(style, linestyle=""))
        tell(mark, f"{model.label}: {share} % certified, {three_digits(cost)} {axis}")
    axes.set_xscale("log")
    axes.margins(0.1)
    plain_log_ticks(axes.xaxis)
    axes.set_xlabel(axis)
    axes.set_ylabel("certified accuracy at 36/255 [%]")
    figure.draw_without_rendering()
    order = [*front, *(index for index in range(len(points)) if index not in front)]
    labels, bars = [], []
    for index in order:
        cost, share, model = points[index]
        labels.append((cost, 100 * share.mean, model.label, method_style(model.network.method).light))
        half = 196 * (share.error or 0.0)
        bars.append((cost, 100 * share.mean - half, 100 * share.mean + half))
    label_points(axes, labels, bars)
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
