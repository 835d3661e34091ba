"""Batch activation variance and Lipschitz constant layer by layer, as in the paper's check of ECO."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes

from onelip.bench.report.figures.canvas import ReportFigure, panels
from onelip.bench.report.figures.labels import label_line_ends
from onelip.bench.report.rows import DiagnosticRow, Evidence
from onelip.bench.report.style import method_style

_NARROWEST = 4.0
"""Least ratio of top to bottom of an axis: norms of nearly exactly 1 would else be drawn as noise that fills it."""


def layer_figures(evidence: Evidence) -> list[ReportFigure]:
    """One figure of two panels for each data set and size; the newest network of a method."""
    groups: dict[tuple[str, str], dict[str, DiagnosticRow]] = defaultdict(dict)
    for row in evidence.diagnostics:
        groups[row.dataset, row.size][row.method] = row
    return [_draw(*name, list(rows.values())) for name, rows in sorted(groups.items())]


def _draw(dataset: str, size: str, rows: Sequence[DiagnosticRow]) -> ReportFigure:
    figure, grid = panels(2, height=3.8, share=False)
    variance, norms = grid
    left = _plot(variance, {row.method: [layer["variance"] for layer in row.layers] for row in rows})
    right = _plot(norms, {row.method: _products(row) for row in rows})
    variance.set_title("batch activation variance", loc="left")
    norms.set_title("product of spectral norms", loc="left")
    figure.draw_without_rendering()
    label_line_ends(variance, left, size=8.5)
    label_line_ends(norms, right, size=8.5)
    lowest = min(rows, key=lambda row: row.layers[-1]["variance"] / max(row.layers[0]["variance"], 1e-300))
    return ReportFigure(
        name=f"layers-{dataset}-{size}",
        section="layers",
        title=f"Variance and norms by layer, {dataset}, {size}",
        caption="Left: batch activation variance after each layer; a 1-Lipschitz layer cannot increase it. Right: "
        "product of "
        "the layers' spectral norms, by power iteration (from below), from the input on. Axes of base 2.",
        alt=f"Variance and product of norms after each layer on {dataset}, size {size}, for {len(rows)} methods. The "
        "variance "
        f"falls most in {method_style(lowest.method).label}.",
        figure=figure,
    )


def _products(row: DiagnosticRow) -> list[float]:
    products, product = [], 1.0
    for layer in row.layers:
        norm = layer.get("norm_estimate")
        product *= 1.0 if norm is None else norm
        products.append(product)
    return products


def _plot(axes: Axes, lines: dict[str, list[float]]) -> list[tuple[float, float, str, str]]:
    ends: list[tuple[float, float, str, str]] = []
    for method, values in lines.items():
        style = method_style(method)
        shown = [(x, y) for x, y in enumerate(values) if y > 0]  # a logarithmic axis has no place for 0
        if not shown:
            continue
        axes.plot(*zip(*shown, strict=True), color=style.light, linewidth=1.5)
        ends.append((*shown[-1], style.label, style.light))
    axes.set_yscale("log", base=2)
    low, high = axes.get_ylim()
    if high / low < _NARROWEST:
        middle = (low * high) ** 0.5
        axes.set_ylim(middle / _NARROWEST**0.5, middle * _NARROWEST**0.5)
    axes.set_xlabel("layer (0: input)")
    return ends
