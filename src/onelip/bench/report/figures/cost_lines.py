"""Training time per epoch, inference throughput and memory, against model size on a logarithmic axis."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from onelip.bench.published import PublishedEpochs, published_epochs, published_speeds
from onelip.bench.report.figures.direct_labels import label_line_ends
from onelip.bench.report.figures.drawing import WIDTH, ReportFigure, horizontal_bars, line_look, new_figure, tell
from onelip.bench.report.intervals import MedianTime
from onelip.bench.report.method_style import method_style, size_order
from onelip.bench.report.report_table import memory, memory_unit, seconds, three_digits
from onelip.bench.report.study_rows import MeasuredTime, StudyResults
from onelip.bench.report.trained_models import main_memory, main_times
from onelip.bench.runs.specs import NetworkSpec
from onelip.protocol import REFERENCE


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


_EPOCH = _Quantity("training-time", "Training time", "seconds per epoch", seconds)
_SPEED = _Quantity("inference-throughput", "Inference throughput", "images per second", three_digits, low_is_good=False)
_TRAIN = _Quantity("training-memory", "Training memory", "at the peak of training", memory)
_INFER = _Quantity("inference-memory", "Inference memory", "at the peak of inference", memory)

_LOG_STEPS = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8),
)
"""Round numbers of a decade, ever denser."""

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


def published_cost_figures(memory: Mapping[NetworkSpec, float]) -> list[ReportFigure]:
    """Training time from the paper's epochs in two hours, throughput from its logs, and the memory that is given."""
    epochs = [
        (_printed(row, "cifar10" if row.dataset == "cifar" else row.dataset), 256, _exact(7200 / row.epochs))
        for row in published_epochs()
        if row.epochs
    ]
    speeds = [
        (NetworkSpec(method=method, size=size), 256, _exact(speed.inference))
        for (method, size), speed in published_speeds().items()
    ]
    return [
        *_family(_EPOCH, epochs, " on the paper's A100, from its epochs in two hours"),
        *_family(_SPEED, speeds, " in the paper's logs, data loading included"),
        *_family(_TRAIN, [(network, 256, _exact(value)) for network, value in memory.items()], " by its formulas"),
    ]


def _printed(row: PublishedEpochs, dataset: str) -> NetworkSpec:
    return NetworkSpec(method=row.key, size=row.size, dataset=dataset)


def _exact(value: float) -> MedianTime:
    return MedianTime(value, value, value)


def _plain(network: NetworkSpec) -> NetworkSpec:
    return NetworkSpec(**{**network.as_dict(), "method": REFERENCE})


def _epochs(rows: list[MeasuredTime]) -> list[_Point]:
    points = []
    for row in rows:
        batches = row.epoch_seconds / row.training.seconds.median
        for network, timing in ((row.network, row.training.seconds), (_plain(row.network), row.training.plain_seconds)):
            points.append(
                (network, row.batch_size, MedianTime(*(batches * t for t in (timing.median, timing.low, timing.high))))
            )
    return points


def _throughputs(rows: list[MeasuredTime]) -> list[_Point]:
    points = []
    for row in rows:
        for network, timing in (
            (row.network, row.inference.seconds),
            (_plain(row.network), row.inference.plain_seconds),
        ):
            # The slowest time is the lowest throughput; an interval that goes to infinity or below 0 stays unbounded.
            bounds = [row.batch_size / t if 0 < t < math.inf else math.inf for t in (timing.high, timing.low)]
            points.append((network, row.batch_size, MedianTime(row.batch_size / timing.median, *bounds)))
    return points


def _family(quantity: _Quantity, points: Iterable[_Point], where: str, note: str = "") -> list[ReportFigure]:
    groups: dict[tuple[str, int], _Lines] = defaultdict(lambda: defaultdict(dict))
    for network, batch, value in points:
        groups[network.dataset, batch][network.method][network.size_name] = value
    return [_draw(quantity.for_values(lines), *place, lines, where, note) for place, lines in groups.items()]


def _draw(quantity: _Quantity, dataset: str, batch: int, lines: _Lines, where: str, note: str) -> ReportFigure:
    sizes = sorted({size for line in lines.values() for size in line}, key=size_order)
    figure = _lines(quantity, lines, sizes) if len(sizes) > 1 else _bars(quantity, lines, sizes[0])
    pick = min if quantity.low_is_good else max
    extreme = []
    for size in sizes:
        own = {method: line[size].median for method, line in lines.items() if size in line}
        best = pick(own, key=own.__getitem__)
        extreme.append(f"{size}: best {method_style(best).label}, {quantity.show(own[best])}")
    scale = "Logarithmic axis." if len(sizes) > 1 else f"Size {sizes[0]}."
    return ReportFigure(
        name=f"{quantity.name}-{dataset}",
        section="costs",
        title=f"{quantity.title}, {dataset}",
        caption=f"{quantity.title}{where}, batches of {batch}. {scale}{note}",
        alt=f"{quantity.title} on {dataset} for {len(lines)} methods. {'; '.join(extreme)}.",
        figure=figure,
    )


def _interval(value: MedianTime, unit: float) -> tuple[float, float] | None:
    return (value.low / unit, value.high / unit) if value.is_bounded and value.low < value.high else None


def _lines(quantity: _Quantity, lines: _Lines, sizes: list[str]) -> Figure:
    figure = new_figure(WIDTH, 3.9)
    axes = figure.subplots()
    ends: list[tuple[float, float, str, str]] = []
    for method, line in lines.items():
        style = method_style(method)
        xs = [x for x, size in enumerate(sizes) if size in line]
        ys = [line[sizes[x]].median / quantity.unit for x in xs]
        axes.plot(xs, ys, **line_look(style, markers=False))
        for x, y in zip(xs, ys, strict=True):
            value = line[sizes[x]]
            (point,) = axes.plot(x, y, **line_look(style))
            tell(point, f"{style.label} {sizes[x]}: {quantity.show(value.median)}")
            if interval := _interval(value, quantity.unit):
                low, high = max(y - interval[0], 0.0), max(interval[1] - y, 0.0)
                axes.errorbar(x, y, yerr=[[low], [high]], ecolor=style.light, elinewidth=1, fmt="none")
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
    """Labels such as 0.5, 2, 50 on a logarithmic axis: the fewest round numbers of which four are in sight."""
    low, high = axis.get_view_interval()
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) if low > 0 else range(0)
    ticks: list[float] = []
    for steps in _LOG_STEPS:
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) >= 4:
            break
    if len(ticks) < 3:  # a narrow range, on which a logarithmic axis looks like a linear one
        ticks = [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: three_digits(value)))
    axis.set_minor_locator(NullLocator())


def _bars(quantity: _Quantity, lines: _Lines, size: str) -> Figure:
    values = {method: line[size] for method, line in lines.items()}
    order = sorted(values, key=lambda method: values[method].median, reverse=not quantity.low_is_good)
    bars = []
    for method in order:
        style, value = method_style(method), values[method]
        shown = (value.median / quantity.unit, _interval(value, quantity.unit), quantity.show(value.median))
        bars.append((style.label, style.light, *shown))
    return horizontal_bars(bars, f"{quantity.axis}, size {size}")[0]
