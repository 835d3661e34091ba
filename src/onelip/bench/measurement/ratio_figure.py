"""The figure of `onelip measure time --figure`: time and memory of each network relative to plain convolutions."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from onelip.atomic_files import write_atomically
from onelip.bench.measurement.peers import PEERS
from onelip.errors import InvalidInputError

FORMATS = (".png", ".svg", ".pdf")
_COLOURS = ("#0072b2", "#e69f00", "#009e73")  # distinct without colour vision too
_GROUP = 0.85
_INCHES_PER_NETWORK, _LEAST_WIDTH = 0.78, 6.0

Ratios = Mapping[str, Mapping[str, float]]
"""Names of networks to their ratios by what is compared, the time of a training step first."""


def draw_ratios(ratios: Ratios, title: str) -> Figure:
    """Grouped bars, the cheapest training step first; names of other packages' layers are grey."""
    figure = Figure(figsize=(max(_LEAST_WIDTH, _INCHES_PER_NETWORK * len(ratios)), 3.8), layout="constrained")
    axes = figure.subplots()
    quantities = list(next(iter(ratios.values()), ()))
    names = sorted(ratios, key=lambda name: ratios[name][quantities[0]])
    for place, quantity in enumerate(quantities):
        width = _GROUP / len(quantities)
        left = [index - _GROUP / 2 + place * width for index in range(len(names))]
        heights = [ratios[name].get(quantity, math.nan) for name in names]
        bars = axes.bar(left, heights, width, align="edge", color=_COLOURS[place % len(_COLOURS)], label=quantity)
        axes.bar_label(bars, fmt="%.2f", rotation=90, fontsize=6, padding=3)
    if names:
        axes.set_xticks(range(len(names)), names)
        axes.legend(frameon=False, ncols=2, loc="upper left", fontsize=8)
    axes.axhline(1, color="0.35", linewidth=0.8, zorder=0)
    axes.tick_params("x", rotation=25)
    for label in axes.get_xticklabels():
        label.set(ha="right", color="0.45" if label.get_text() in PEERS else "black")
    axes.set_ylabel("relative to plain convolutions")
    axes.margins(y=0.14)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def save_ratios(ratios: Ratios, title: str, path: Path) -> None:
    """Write the figure in the format of the path's suffix."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidInputError(f"{path} is not the name of a figure, let it end in {', '.join(FORMATS)}")
    content = io.BytesIO()
    draw_ratios(ratios, title).savefig(content, format=path.suffix[1:].lower(), dpi=160)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
