"""The figure of `onelip bench speed`: three bars for each network, cheapest first, with the goals as ticks."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from onelip.atomic_files import write_atomically
from onelip.bench.speed.contestants import ONELIP
from onelip.bench.speed.results import SpeedReport
from onelip.bench.speed.targets import QUANTITIES
from onelip.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
_COLOURS = {"training": "#0072b2", "inference": "#e69f00", "memory": "#009e73"}  # distinct without colour vision too
_BAR = 0.27
_INCHES_PER_NETWORK, _LEAST_WIDTH = 0.78, 6.0


def check_format(path: Path) -> None:
    """Refuse a name that does not say a known format, before anything is measured."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidInputError(f"{path} is not the name of a figure, let it end in {', '.join(FORMATS)}")


def draw_speed(report: SpeedReport) -> Figure:
    """Grouped bars, networks ordered by the time of a training step; names of other packages' layers are grey."""
    from matplotlib.figure import Figure

    rows = report.cheapest_first()
    figure = Figure(figsize=(max(_LEAST_WIDTH, _INCHES_PER_NETWORK * len(rows)), 3.8), layout="constrained")
    axes = figure.subplots()
    for index, quantity in enumerate(QUANTITIES):
        _draw_quantity(axes, report, quantity, 1.05 * _BAR * (index - 1))
    axes.axhline(1, color="0.35", linewidth=0.8, zorder=0)
    axes.set_xticks(range(len(rows)), [row.contestant.title for row in rows], rotation=25, ha="right")
    for label, row in zip(axes.get_xticklabels(), rows, strict=True):
        label.set_color("black" if row.contestant.package == ONELIP else "0.45")
    axes.set_ylabel("relative to plain convolutions")
    axes.margins(x=0.01, y=0.14)
    axes.set_title(report.setting, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    _draw_legend(axes)
    return figure


def save_speed(report: SpeedReport, path: Path) -> None:
    """Write the figure in the format of the path's suffix, and all figures as JSON beside it."""
    check_format(path)
    content = io.BytesIO()
    draw_speed(report).savefig(content, format=path.suffix[1:].lower(), dpi=160)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
    write_atomically(path.with_suffix(".json"), report.as_json().encode())


def _draw_quantity(axes: Axes, report: SpeedReport, quantity: str, shift: float) -> None:
    """Bars of one quantity, a tick at each goal, and the ratio in figures above the higher of the two."""
    rows = report.cheapest_first()
    places, heights = [row + shift for row in range(len(rows))], [row.ratios[quantity] for row in rows]
    axes.bar(places, heights, width=_BAR, color=_COLOURS[quantity], label=QUANTITIES[quantity])
    targets = {
        place: goals[quantity].target for place, row in zip(places, rows, strict=True) if (goals := report.goals(row))
    }
    if targets:
        starts, ends = [place - _BAR / 2 for place in targets], [place + _BAR / 2 for place in targets]
        axes.hlines(list(targets.values()), starts, ends, color="black", linewidth=1.6, label="goal")
    for place, height in zip(places, heights, strict=True):
        top = max(height, targets.get(place, 0.0))
        look = {"fontsize": 6, "rotation": 90, "ha": "center", "va": "bottom"}
        axes.annotate(f"{height:.2f}", (place, top), xytext=(0, 3), textcoords="offset points", **look)


def _draw_legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))  # the goals of the three quantities are one entry
    axes.legend(list(unique.values()), list(unique), frameon=False, ncols=2, loc="upper left", fontsize=8)
