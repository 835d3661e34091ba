"""Radar plots: one small panel per method, measured values on the scales of `radar_scale.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.projections.polar import PolarAxes

from onelip.bench.report.figures.drawing import GRID, INK, ReportFigure, new_figure, tell
from onelip.bench.report.method_style import method_style
from onelip.bench.report.radar_scale import RINGS, RadarMetric

_COLUMNS = 4
_LEAST_METRICS = 3


def radar_figures(metrics: Sequence[RadarMetric], published: Sequence[RadarMetric]) -> list[ReportFigure]:
    """The study's radar, if at least three metrics have values for some method, and the paper's beside it."""
    figures = one_radar("radar", "Measured values at a glance", metrics)
    if not figures:
        return []
    words = (
        "From the paper's tables for CIFAR-10 after 24 hours on an A100; training time is relative to the fastest "
        "method of each size, since the paper gives none for a plain network. "
    )
    return [*figures, *one_radar("radar-published", "The paper's values on the same kind of scale", published, words)]


def one_radar(name: str, title: str, metrics: Sequence[RadarMetric], source: str = "") -> list[ReportFigure]:
    """One radar plot, of at least three metrics, as a list; else an empty one."""
    shared = set.intersection(*(set(metric.values) for metric in metrics)) if metrics else set()
    methods = sorted(shared)
    if len(metrics) < _LEAST_METRICS or not methods:
        return []
    rows, columns = -(-len(methods) // _COLUMNS), min(_COLUMNS, len(methods))
    figure = new_figure(2.9 * columns, 2.8 * rows)
    for place, method in enumerate(methods):
        axes = figure.add_subplot(rows, columns, place + 1, projection="polar")
        assert isinstance(axes, PolarAxes)
        _panel(axes, method, metrics)
    named: dict[str, list[str]] = {}
    for metric in metrics:
        named.setdefault(metric.scale, []).append(metric.name.lower())
    scales = "; ".join(f"{', '.join(names)}: {scale}" for scale, names in named.items())
    best = "; ".join(
        f"{metric.name.lower()}: {method_style(max(methods, key=metric.positions.__getitem__)).label}"
        for metric in metrics
    )
    return [
        ReportFigure(
            name=name,
            section="overview",
            title=title,
            caption=f"{source}Outwards is better. Scales: {scales}.",
            alt=f"One radar plot per method with {len(metrics)} metrics. Best in {best}.",
            figure=figure,
        )
    ]


def _panel(axes: PolarAxes, method: str, metrics: Sequence[RadarMetric]) -> None:
    style = method_style(method)
    angles = [2 * math.pi * index / len(metrics) for index in range(len(metrics))]
    positions = [metric.positions[method] for metric in metrics]
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_ylim(0, RINGS)
    axes.set_yticks(range(1, RINGS + 1), [""] * RINGS)
    axes.set_xticks(angles, [""] * len(angles))
    for angle, metric in zip(angles, metrics, strict=True):
        # Written by hand: labels of the axis are centred, and those at the sides would lie on the plot.
        side = round(math.sin(angle), 6)
        place = {"ha": "center" if side == 0 else "left" if side > 0 else "right", "va": "center", "fontsize": 7.5}
        words = f"{metric.name.lower().replace(' ', chr(10))}\n{_shown(metric, method)}"
        axes.text(angle, RINGS + (1.1 if side == 0 else 0.35), words, clip_on=False, **place)
    axes.grid(color=GRID)
    axes.spines["polar"].set_color(GRID)
    axes.fill([*angles, angles[0]], [*positions, positions[0]], color=style.light, alpha=0.28, linewidth=0)
    axes.plot([*angles, angles[0]], [*positions, positions[0]], color=style.light, linewidth=2)
    for angle, position, metric in zip(angles, positions, metrics, strict=True):
        mark = axes.scatter(angle, position, color=style.light, s=16, zorder=3)
        tell(mark, f"{style.label}, {metric.name.lower()}: {_shown(metric, method)}")
    axes.set_title(style.label, color=INK, pad=34)


def _shown(metric: RadarMetric, method: str) -> str:
    value = metric.values[method]
    return f"{100 * value:.1f} %" if metric.unit == "%" else f"{value:.2f}x"
