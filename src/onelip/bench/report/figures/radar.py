"""The radar plot: one small radar per method, so that none hides another."""

from __future__ import annotations

import math

from matplotlib.projections.polar import PolarAxes

from onelip.bench.report.figures.canvas import GRID, INK, ReportFigure, new_figure
from onelip.bench.report.scores import HIGHEST, LOWEST, METRICS, RadarScores
from onelip.bench.report.style import method_style

_COLUMNS = 4
_LEAST_METRICS = 3
_SHORT = {
    "Certified accuracy": "certified\naccuracy",
    "Accuracy": "accuracy",
    "Training time": "training\ntime",
    "Inference time": "inference\ntime",
    "Training memory": "training\nmemory",
    "Inference memory": "inference\nmemory",
}


def radar_figures(scores: RadarScores) -> list[ReportFigure]:
    """The figure, if at least three metrics are scored for some method."""
    metrics = [metric for metric in METRICS if metric in scores.scores]
    methods = scores.methods
    if len(metrics) < _LEAST_METRICS or not methods:
        return []
    rows = -(-len(methods) // _COLUMNS)
    columns = min(_COLUMNS, len(methods))
    figure = new_figure(2.5 * columns, 2.6 * rows)
    means: dict[str, float] = {}
    for place, method in enumerate(methods):
        axes = figure.add_subplot(rows, columns, place + 1, projection="polar")
        assert isinstance(axes, PolarAxes)
        values = [scores.scores[metric][method] for metric in metrics]
        means[method] = sum(values) / len(values)
        _radar(axes, method, metrics, values)
    best = sorted(means, key=lambda method: -means[method])[:3]
    described = ", ".join(f"{method_style(method).label} {means[method]:.1f}" for method in best)
    absent = [metric.lower() for metric in METRICS if metric not in metrics]
    note = f" Not scored for lack of records: {', '.join(absent)}." if absent else ""
    return [
        ReportFigure(
            name="radar",
            section="overview",
            title="Six metrics at a glance" if not absent else f"{len(metrics)} of six metrics at a glance",
            caption=f"Scores from 1 (centre) to 5 (rim); outwards is better.{note}",
            alt=f"One radar plot per method with {len(metrics)} scores from 1 to 5. Highest mean scores: {described}.",
            figure=figure,
        )
    ]


def _radar(axes: PolarAxes, method: str, metrics: list[str], values: list[float]) -> None:
    style = method_style(method)
    angles = [2 * math.pi * index / len(metrics) for index in range(len(metrics))]
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_ylim(LOWEST - 0.6, HIGHEST)
    axes.set_yticks(range(1, 6), [""] * 5)
    axes.set_xticks(angles, [""] * len(angles))
    for angle, metric in zip(angles, metrics, strict=True):
        # Written by hand: labels of the axis are centred, and those at the sides would lie on the plot.
        side = round(math.sin(angle), 6)
        place = {"ha": "center" if side == 0 else "left" if side > 0 else "right", "va": "center", "fontsize": 7.5}
        axes.text(angle, HIGHEST + (0.85 if side == 0 else 0.3), _SHORT[metric], clip_on=False, **place)
    axes.grid(color=GRID)
    axes.spines["polar"].set_color(GRID)
    axes.fill([*angles, angles[0]], [*values, values[0]], color=style.light, alpha=0.28, linewidth=0)
    axes.plot([*angles, angles[0]], [*values, values[0]], color=style.light, linewidth=2)
    axes.scatter(angles, values, color=style.light, s=14, zorder=3)
    axes.set_title(style.label, color=INK, pad=27)
