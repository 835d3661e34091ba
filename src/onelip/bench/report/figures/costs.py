"""Training time per epoch, inference throughput and memory, against model size on a logarithmic axis."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from onelip.bench.report.figures.canvas import AXIS, INK, WIDTH, ReportFigure, new_figure
from onelip.bench.report.figures.labels import label_line_ends
from onelip.bench.report.rows import CostKey, Evidence
from onelip.bench.report.style import method_style, size_order
from onelip.bench.report.summaries import main_memory, main_times


@dataclass(frozen=True)
class _Quantity:
    name: str
    title: str
    axis: str
    low_is_good: bool
    caption: str


_EPOCH = _Quantity("training-time", "Training time", "seconds per epoch", True, "Time of one epoch of training")
_SPEED = _Quantity(
    "inference-throughput",
    "Inference throughput",
    "images per second",
    False,
    "Images per second at inference, parameter transformations cached",
)
_TRAIN = _Quantity("training-memory", "Training memory", "GiB at the peak of training", True, "Peak memory of training")
_INFER = _Quantity(
    "inference-memory", "Inference memory", "GiB at the peak of inference", True, "Peak memory of inference"
)

_Points = dict[str, dict[str, float]]


def cost_figures(evidence: Evidence) -> list[ReportFigure]:
    """The four figures of each data set that has measurements."""
    times, memory = main_times(evidence), main_memory(evidence)
    hardware = f" on {times[0].hardware}" if times else ""
    sources = ", ".join(sorted({row.source for row in memory}))
    return [
        *_family(_EPOCH, ((row.key, row.epoch_seconds) for row in times), hardware),
        *_family(_SPEED, ((row.key, row.images_per_second) for row in times), hardware),
        *_family(_TRAIN, ((row.key, row.training / 2**30) for row in memory), f" ({sources})"),
        *_family(_INFER, ((row.key, row.inference / 2**30) for row in memory), f" ({sources})"),
    ]


def _family(quantity: _Quantity, values: Iterable[tuple[CostKey, float]], where: str) -> list[ReportFigure]:
    by_dataset: dict[tuple[str, int], _Points] = defaultdict(lambda: defaultdict(dict))
    for key, value in values:
        by_dataset[key.dataset, key.batch_size][key.method][key.size] = value
    return [_draw(quantity, *name, points, where) for name, points in by_dataset.items()]


def _draw(quantity: _Quantity, dataset: str, batch: int, points: _Points, where: str) -> ReportFigure:
    sizes = sorted({size for line in points.values() for size in line}, key=size_order)
    figure = _lines(quantity, points, sizes) if len(sizes) > 1 else _bars(quantity, points, sizes[0])
    sign = -1 if quantity.low_is_good else 1
    extreme = [
        f"{size}: best {method_style(max(own, key=lambda m: sign * own[m])).label}"
        for size in sizes
        if (own := {method: line[size] for method, line in points.items() if size in line})
    ]
    return ReportFigure(
        name=f"{quantity.name}-{dataset}",
        section="costs",
        title=f"{quantity.title}, {dataset}",
        caption=f"{quantity.caption}{where}, batches of {batch}."
        + (" Logarithmic axis." if len(sizes) > 1 else f" Size {sizes[0]}."),
        alt=f"{quantity.title} on {dataset} for {len(points)} methods. {'; '.join(extreme)}.",
        figure=figure,
    )


def _lines(quantity: _Quantity, points: _Points, sizes: list[str]) -> Figure:
    figure = new_figure(WIDTH, 3.9)
    axes = figure.subplots()
    ends: list[tuple[float, float, str, str]] = []
    for method, line in points.items():
        style = method_style(method)
        xs = [x for x, size in enumerate(sizes) if size in line]
        ys = [line[sizes[x]] for x in xs]
        axes.plot(xs, ys, color=style.light, marker=style.marker, markeredgecolor="none", markeredgewidth=0)
        ends.append((xs[-1], ys[-1], style.label, style.light))
    axes.set_yscale("log")
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_xlim(-0.15, len(sizes) - 0.85)
    axes.set_xlabel("model size")
    axes.set_ylabel(quantity.axis)
    plain_log_ticks(axes.yaxis)
    figure.draw_without_rendering()
    label_line_ends(axes, ends)
    return figure


def plain_log_ticks(axis: Axis) -> None:
    """Labels such as 0.5, 2, 50 on a logarithmic axis, dense where it spans little."""
    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if low > 0 else 9
    steps = (1, 2, 3, 5) if decades < 1 else (1, 2, 5) if decades < 2.5 else (1,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _bars(quantity: _Quantity, points: _Points, size: str) -> Figure:
    values = {method: line[size] for method, line in points.items()}
    order = sorted(values, key=lambda method: values[method], reverse=quantity.low_is_good)
    figure = new_figure(WIDTH, 1.0 + 0.27 * len(order))
    axes = figure.subplots()
    for place, method in enumerate(order):
        axes.barh(place, values[method], color=method_style(method).light, height=0.7)
        axes.annotate(
            f"{values[method]:.3g}",
            (values[method], place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=INK,
        )
    axes.set_yticks(range(len(order)), [method_style(method).label for method in order])
    axes.set_xlim(0, 1.12 * max(values.values()))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_color(AXIS)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{quantity.axis}, size {size}")
    return figure
