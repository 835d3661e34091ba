"""Figures of the sanity checks, from plain records: nothing here needs the model.

As in the comparison paper's figure on ECO: the batch activation variance layer by layer, and the product of the
layers' spectral norms, on logarithmic axes of base 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_diagnostics(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Variances, norms and, where there are any, gradient norms, from `Diagnostics.as_records()`."""
    from matplotlib.figure import Figure

    layers = [record for record in records if record["path"] != "input"]
    gradients = [record.get("gradient_norm") for record in layers]
    panels = 3 if all(gradient is not None for gradient in gradients) else 2
    figure = Figure(figsize=(4.2 * panels, 3.4), layout="constrained")
    axes = figure.subplots(1, panels)
    _lines(axes[0], {"batch": [record["variance"] for record in records]}, "batch activation variance", start=0)
    estimates, product = [], 1.0
    for record in layers:
        product *= 1.0 if record["norm_estimate"] is None else record["norm_estimate"]
        estimates.append(product)
    bounds = [record["bound_product"] for record in layers]
    _lines(axes[1], {"power iteration": estimates, "proven bound": bounds}, "Lipschitz constant from the input")
    axes[1].legend()
    if panels == 3:
        _lines(axes[2], {"loss": [float(g) for g in gradients if g is not None]}, "gradient norm at the output")
    return figure


def save_diagnostics(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the figure; the suffix of the path chooses the format (png, pdf, svg)."""
    draw_diagnostics(records).savefig(path, dpi=150)


def _lines(axes: Axes, series: Mapping[str, Sequence[float]], title: str, start: int = 1) -> None:
    values = [value for line in series.values() for value in line if value > 0]
    for label, line in series.items():
        axes.plot(range(start, start + len(line)), line, marker=".", markersize=3, linewidth=1, label=label)
    axes.set_yscale("log", base=2)
    # Norms of nearly exactly 1 would otherwise be drawn as noise that fills the panel.
    if values and max(values) / min(values) < 2:
        axes.set_ylim(min(values) / 2, max(values) * 2)
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("layer")
    axes.grid(alpha=0.3)
