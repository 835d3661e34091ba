"""Batch activation variance, Lipschitz constant and gradients layer by layer, as in the paper's check of ECO."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from onelip.bench.records.views import DiagnosedLayer, diagnosed_layers
from onelip.bench.report.figures.drawing import ReportFigure, figure_style, line_look, panels, tell
from onelip.bench.report.figures.labels import End, label_line_ends
from onelip.bench.report.method_style import method_style
from onelip.bench.report.study_rows import DiagnosedNetwork, StudyResults

_NARROWEST = 4.0
"""Least ratio of top to bottom of an axis: norms of nearly exactly 1 would else be drawn as noise that fills it."""


def layer_figures(study: StudyResults) -> list[ReportFigure]:
    """One figure for each data set and size; one network of a method, the last by name."""
    groups: dict[tuple[str, str], dict[str, DiagnosedNetwork]] = defaultdict(dict)
    for row in study.diagnosed:
        groups[row.network.dataset, row.network.size_name][row.network.method] = row
    figures = []
    for (dataset, size), networks in sorted(groups.items()):
        lowest = min(networks.values(), key=lambda row: row.layers[-1].variance / max(row.layers[0].variance, 1e-300))
        figures.append(
            ReportFigure(
                name=f"layers-{dataset}-{size.lower()}",
                section="layers",
                title=f"Variance and norms by layer, {dataset}, {size}",
                caption="Left: batch activation variance after each layer, which a 1-Lipschitz layer cannot increase. "
                "Right: product of the layers' spectral norms from the input on, by power iteration (from below). "
                "Logarithmic axes of base 2.",
                alt=f"Variance and product of norms after each layer on {dataset}, size {size}, for {len(networks)} "
                f"methods. The variance falls most in {method_style(lowest.network.method).label}.",
                figure=draw_layers({method: row.layers for method, row in networks.items()}),
            )
        )
    return figures


def draw_layers(networks: Mapping[str, Sequence[DiagnosedLayer]], *, gradients: bool = False) -> Figure:
    """Variances and products of norms, and for a check of one network its gradient norms, where they are known."""
    drawn = {
        "batch activation variance": {method: [la.variance for la in layers] for method, layers in networks.items()},
        "product of spectral norms": {
            method: list(accumulate((1.0 if la.norm_estimate is None else la.norm_estimate for la in layers), mul))
            for method, layers in networks.items()
        },
    }
    if gradients and all(la.gradient_norm is not None for layers in networks.values() for la in layers[1:]):
        drawn["gradient norm at the output"] = {
            method: [la.gradient_norm or 0.0 for la in layers[1:]] for method, layers in networks.items()
        }
    figure, grid = panels(len(drawn), height=3.8, share=False)
    label_line_ends(figure, {axes: _plot(axes, *named) for axes, named in zip(grid, drawn.items(), strict=True)})
    return figure


def save_diagnostics(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw `Diagnostics.as_records()` of one network into a file; the suffix chooses the format (png, pdf, svg)."""
    with figure_style():
        draw_layers({"network": diagnosed_layers(records)}, gradients=True).savefig(path, dpi=150)


def _plot(axes: Axes, title: str, lines: dict[str, list[float]]) -> list[End]:
    """Draw the lines; returns their ends with names and colours."""
    ends: list[End] = []
    for method, values in lines.items():
        style = method_style(method)
        shown = [(x, y) for x, y in enumerate(values) if y > 0]  # a logarithmic axis has no place for 0
        if not shown:
            continue
        (line,) = axes.plot(*zip(*shown, strict=True), **line_look(style, markers=False, linewidth=1.5))
        tell(line, f"{style.label}: from {shown[0][1]:.3g} to {shown[-1][1]:.3g}")
        ends.append((*shown[-1], style.label, style.light))
    axes.set_title(title, loc="left")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # its own is mathematics
    low, high = axes.get_ylim()
    if high / low < _NARROWEST:
        middle = (low * high) ** 0.5
        axes.set_ylim(middle / _NARROWEST**0.5, middle * _NARROWEST**0.5)
    axes.set_xlabel("layer (0: input)")
    return ends
