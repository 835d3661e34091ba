"""Training time per epoch, inference throughput and memory against model size, and relative to plain convolutions."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from onelip.atomic_files import write_atomically
from onelip.bench.paper.complexity import published_training_memory
from onelip.bench.paper.published import published_epochs, published_speeds
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.records.views import MedianTime, PhaseTime
from onelip.bench.report.figures.drawing import (
    AXIS,
    INK,
    WIDTH,
    Bar,
    ReportFigure,
    draw_mark,
    figure_style,
    horizontal_bars,
    line_look,
    new_figure,
    plain_log_ticks,
)
from onelip.bench.report.figures.labels import label_line_ends
from onelip.bench.report.method_style import method_style, size_order
from onelip.bench.report.report_table import memory, memory_unit, seconds, three_digits
from onelip.bench.report.study_rows import MeasuredTime, StudyResults
from onelip.bench.report.trained_models import main_memory, main_times
from onelip.errors import InvalidInputError
from onelip.protocol import DATA_SETS, REFERENCE


@dataclass(frozen=True)
class _Quantity:
    name: str
    title: str
    axis: str
    show: Callable[[float], str]
    low_is_good: bool = True
    unit: float = 1.0

    def for_values(self, lines: _Lines) -> _Quantity:
        """Memory in the unit that fits what is shown."""
        if self.show is not memory:
            return self
        unit, name = memory_unit(value.median for line in lines.values() for value in line.values())
        return replace(self, axis=f"{name} {self.axis}", unit=unit)

    def ranked(self, values: Mapping[str, MedianTime]) -> list[tuple[str, MedianTime]]:
        """Methods with their values, the best first."""
        return sorted(values.items(), key=lambda pair: pair[1].median, reverse=not self.low_is_good)

    def interval(self, value: MedianTime) -> tuple[float, float] | None:
        """The 95 % interval on the axis, where there is one."""
        is_interval = value.is_bounded and value.low < value.high
        return (value.low / self.unit, value.high / self.unit) if is_interval else None


_EPOCH = _Quantity("training-time", "Training time", "seconds per epoch", seconds)
_SPEED = _Quantity("inference-throughput", "Inference throughput", "images per second", three_digits, low_is_good=False)
_TRAIN = _Quantity("training-memory", "Training memory", "at the peak of training", memory)
_INFER = _Quantity("inference-memory", "Inference memory", "at the peak of inference", memory)

_Point = tuple[NetworkSpec, int, MedianTime]
_Lines = dict[str, dict[str, MedianTime]]


def cost_figures(study: StudyResults) -> list[ReportFigure]:
    """The four figures of each data set that has measurements."""
    times, rows = main_times(study), main_memory(study)
    bounded = bool(times) and all(row.training.ratio.is_bounded and row.inference.ratio.is_bounded for row in times)
    lines = "with 95 % intervals" if bounded else "with 95 % intervals where enough rounds were timed"
    where = f" on {times[0].hardware}, {lines}" if times else ""
    turns = (
        " Networks were timed one after the other: the table's ratios, timed in turns with plain, compare them better."
    )
    sources = " and ".join(sorted({row.source for row in rows}))
    return [
        *_family(_EPOCH, _epochs(times), where, turns),
        *_family(_SPEED, _throughputs(times), f"{where}, parameter transformations cached", turns),
        *_family(_TRAIN, [(row.network, row.batch_size, _exact(row.training)) for row in rows], f", {sources}"),
        *_family(_INFER, [(row.network, row.batch_size, _exact(row.inference)) for row in rows], f", {sources}"),
    ]


def published_cost_figures() -> list[ReportFigure]:
    """Training time from the paper's epochs in two hours, throughput from its logs, and memory by its formulas."""
    epochs, memory = [], []
    for row in published_epochs():
        network = NetworkSpec(
            method=row.key, size=row.size, dataset="cifar10" if row.dataset == "cifar" else row.dataset
        )
        peak = published_training_memory(row.key, row.size, DATA_SETS[network.dataset].image_size)
        memory.append((network, 256, _exact(peak)))
        epochs += [(network, 256, _exact(7200 / row.epochs))] if row.epochs else []
    speeds = [
        (NetworkSpec(method=method, size=size), 256, _exact(speed.inference))
        for (method, size), speed in published_speeds().items()
    ]
    return [
        *_family(_EPOCH, epochs, " on the paper's A100, from its epochs in two hours"),
        *_family(_SPEED, speeds, " in the paper's logs, data loading included"),
        *_family(_TRAIN, memory, " by its formulas"),
    ]


def _exact(value: float) -> MedianTime:
    return MedianTime(value, value, value)


def _with_plain(row: MeasuredTime, phase: PhaseTime) -> list[tuple[NetworkSpec, MedianTime]]:
    """Seconds of a batch of the network, and of the plain one that was timed in turns with it."""
    plain = NetworkSpec(**{**row.network.as_dict(), "method": REFERENCE})
    return [(row.network, phase.seconds), (plain, phase.reference_seconds)]


def _epochs(rows: list[MeasuredTime]) -> list[_Point]:
    points = []
    for row in rows:
        batches = row.seconds_per_epoch / row.training.seconds.median
        for network, t in _with_plain(row, row.training):
            points.append((network, row.batch_size, MedianTime(batches * t.median, batches * t.low, batches * t.high)))
    return points


def _throughputs(rows: list[MeasuredTime]) -> list[_Point]:
    points = []
    for row in rows:
        for network, timing in _with_plain(row, row.inference):
            # The slowest time is the lowest throughput; an interval that goes to infinity or below 0 stays unbounded.
            bounds = [row.inference_batch / t if 0 < t < math.inf else math.inf for t in (timing.high, timing.low)]
            points.append((network, row.inference_batch, MedianTime(row.inference_batch / timing.median, *bounds)))
    return points


def _family(quantity: _Quantity, points: Iterable[_Point], where: str, note: str = "") -> list[ReportFigure]:
    groups: dict[tuple[str, int], _Lines] = defaultdict(lambda: defaultdict(dict))
    for network, batch, value in points:
        groups[network.dataset, batch][network.method][network.size_name] = value
    return [_draw(quantity.for_values(lines), *place, lines, where, note) for place, lines in groups.items()]


def _draw(quantity: _Quantity, dataset: str, batch: int, lines: _Lines, where: str, note: str) -> ReportFigure:
    sizes = sorted({size for line in lines.values() for size in line}, key=size_order)
    extreme = []
    for size in sizes:
        best, value = quantity.ranked({method: line[size] for method, line in lines.items() if size in line})[0]
        extreme.append(f"{size}: best {method_style(best).label}, {quantity.show(value.median)}")
    scale = "Logarithmic axis." if len(sizes) > 1 else f"Size {sizes[0]}."
    return ReportFigure(
        name=f"{quantity.name}-{dataset}",
        section="costs",
        title=f"{quantity.title}, {dataset}",
        caption=f"{quantity.title}{where}, batches of {batch}. {scale}{note}",
        alt=f"{quantity.title} on {dataset} for {len(lines)} methods. {'; '.join(extreme)}.",
        figure=_lines(quantity, lines, sizes) if len(sizes) > 1 else _bars(quantity, lines, sizes[0]),
    )


def _lines(quantity: _Quantity, lines: _Lines, sizes: list[str]) -> Figure:
    figure = new_figure(WIDTH, 3.9)
    axes = figure.subplots()
    ends: list[tuple[float, float, str, str]] = []
    for method, line in lines.items():
        style = method_style(method)
        points = [(x, line[size]) for x, size in enumerate(sizes) if size in line]
        ys = [value.median / quantity.unit for _, value in points]
        axes.plot([x for x, _ in points], ys, **line_look(style, markers=False))
        for (x, value), y in zip(points, ys, strict=True):
            words = f"{style.label} {sizes[x]}: {quantity.show(value.median)}"
            draw_mark(axes, x, y, style, words, quantity.interval(value))
        ends.append((points[-1][0], ys[-1], style.label, style.light))
    axes.set_yscale("log")
    axes.set_xticks(range(len(sizes)), sizes)
    axes.set_xlim(-0.15, len(sizes) - 0.85)
    axes.set_xlabel("model size")
    axes.set_ylabel(quantity.axis)
    plain_log_ticks(axes.yaxis)
    label_line_ends(figure, {axes: ends}, size=9)
    return figure


def _bars(quantity: _Quantity, lines: _Lines, size: str) -> Figure:
    bars = []
    for method, value in quantity.ranked({method: line[size] for method, line in lines.items()}):
        style, words = method_style(method), quantity.show(value.median)
        bars.append(Bar(style.label, style.light, value.median / quantity.unit, quantity.interval(value), words))
    return horizontal_bars(bars, f"{quantity.axis}, size {size}")


Ratios = Mapping[str, Mapping[str, float]]
"""Names of networks to their ratios by what is compared, the time of a training step first."""

_RATIO_COLOURS = ("#0072b2", "#e69f00", "#009e73")  # distinct without colour vision too


def draw_ratios(ratios: Ratios, title: str) -> Figure:
    """Grouped bars, the cheapest training step first; names of other packages' layers are grey."""
    figure = new_figure(max(6.0, 0.78 * len(ratios)))
    axes = figure.subplots()
    quantities = list(next(iter(ratios.values()), ()))
    names = sorted(ratios, key=lambda name: ratios[name][quantities[0]])
    width = 0.85 / max(len(quantities), 1)
    for place, (quantity, colour) in enumerate(zip(quantities, _RATIO_COLOURS, strict=False)):
        centres = [index + (place - (len(quantities) - 1) / 2) * width for index in range(len(names))]
        bars = axes.bar(
            centres, [ratios[n].get(quantity, math.nan) for n in names], width, color=colour, label=quantity
        )
        axes.bar_label(bars, fmt="%.2f", rotation=90, fontsize=6, padding=3)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right")
    for name, label in zip(names, axes.get_xticklabels(), strict=True):
        label.set_color(AXIS if ":" in name else INK)
    if names:
        axes.legend(ncols=2, loc="upper left", fontsize=8)
    axes.axhline(1, color=AXIS, linewidth=0.8, zorder=0)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("relative to plain convolutions")
    axes.margins(y=0.14)
    axes.set_title(title)
    return figure


def save_ratios(ratios: Ratios, title: str, path: Path) -> None:
    """The figure of `onelip measure time --figure`, in the format of the path's suffix."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InvalidInputError(f"{path} is not the name of a figure, let it end in .png, .svg, .pdf")
    content = io.BytesIO()
    with figure_style():
        draw_ratios(ratios, title).savefig(content, format=path.suffix[1:].lower(), dpi=160)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
