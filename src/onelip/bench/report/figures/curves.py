"""Lines by method, one panel per size: certified accuracy against budget and radius, and the loss."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from onelip.bench.report.figures.canvas import INK, ReportFigure, panels
from onelip.bench.report.figures.labels import label_line_ends
from onelip.bench.report.style import BASELINES, method_style, size_order
from onelip.bench.report.summaries import ModelSummary, longest_budget
from onelip.bench.report.tables import duration_text

Line = tuple[list[float], list[float]]


def budget_figures(models: Sequence[ModelSummary]) -> list[ReportFigure]:
    """Certified accuracy against the training budget, for data sets with at least two."""
    guaranteed = [model for model in models if model.kernel_size == 3 and model.method not in BASELINES]
    timed = [model for model in guaranteed if model.budget_hours is not None and model.certified_36 is not None]
    figures = []
    for dataset in sorted({model.dataset for model in timed}):
        lines: dict[str, dict[str, Line]] = defaultdict(dict)
        own = [model for model in timed if model.dataset == dataset]
        hours = sorted({model.budget_hours for model in own if model.budget_hours})
        for model in sorted(own, key=lambda m: m.budget_hours or 0.0):
            xs, ys = lines[model.size].setdefault(model.method, ([], []))
            xs.append(3600 * (model.budget_hours or 0.0))
            ys.append(100 * (model.certified_36 or 0.0))
        if all(len(xs) < 2 for part in lines.values() for xs, _ in part.values()):
            continue

        def time_axis(axes: Axes, ticks: list[float] = hours) -> None:
            axes.set_xscale("log")
            axes.set_xticks([3600 * tick for tick in ticks], [duration_text(3600 * tick) for tick in ticks])
            axes.minorticks_off()

        text = "Certified accuracy at radius 36/255 against the training budget"
        axis_names = ("training budget", "certified accuracy [%]")
        figures.append(
            _panels(f"budgets-{dataset}", "accuracy", f"Training budget, {dataset}", text, lines, axis_names, time_axis)
        )
    return figures


def radius_figures(models: Sequence[ModelSummary]) -> list[ReportFigure]:
    """Certified accuracy against the radius; radius 0 is clean accuracy."""
    compared = [m for m in longest_budget(models) if len(m.certified) > 1 and m.method not in BASELINES]
    figures = []
    for dataset in sorted({model.dataset for model in compared}):
        lines: dict[str, dict[str, Line]] = defaultdict(dict)
        for model in (model for model in compared if model.dataset == dataset):
            points = [] if model.accuracy is None else [(0.0, model.accuracy.mean)]
            points += [(float(radius), spread.mean) for radius, spread in sorted(model.certified.items())]
            lines[model.size][model.method] = [x for x, _ in points], [100 * y for _, y in points]
        text = "Certified accuracy against the radius of the perturbation (0: clean accuracy)"
        axis_names = ("radius x 255", "certified accuracy [%]")

        def radius_axis(axes: Axes) -> None:
            axes.set_xticks([0, 36, 72, 108, 255])

        figures.append(
            _panels(f"radii-{dataset}", "accuracy", f"Radius, {dataset}", text, lines, axis_names, radius_axis)
        )
    return figures


def loss_figures(models: Sequence[ModelSummary]) -> list[ReportFigure]:
    """Training loss by epoch, of the first seed of each model with the longest budget."""
    figures = []
    compared = longest_budget(models)
    for dataset in sorted({model.dataset for model in compared}):
        lines: dict[str, dict[str, Line]] = defaultdict(dict)
        for model in (model for model in compared if model.dataset == dataset):
            line = _loss_line(model)
            if len(line[0]) > 1:
                lines[model.size][model.method] = line
        if lines:
            text = "Training loss by the share of the training that is done, first seed"
            axis_names = ("share of the training", "loss")
            figures.append(
                _panels(f"loss-{dataset}", "training", f"Loss, {dataset}", text, lines, axis_names, _plain_axis)
            )
    return figures


def _loss_line(model: ModelSummary) -> Line:
    history = [entry for entry in model.runs[0].history if "step" in entry and "train_loss" in entry]
    last = history[-1]["step"] if history else 1
    points = [(entry["step"] / last, float(entry["train_loss"])) for entry in history]
    kept = [(x, y) for x, y in points if math.isfinite(y)]
    return [x for x, _ in kept], [y for _, y in kept]


def _plain_axis(axes: Axes) -> None:
    axes.set_xlim(0, 1)


def _panels(
    name: str,
    section: str,
    title: str,
    text: str,
    lines: dict[str, dict[str, Line]],
    axis_names: tuple[str, str],
    finish: Callable[[Axes], None],
) -> ReportFigure:
    sizes = sorted(lines, key=size_order)
    figure, grid = panels(len(sizes))
    for size, axes in zip(sizes, grid, strict=True):
        for method, (xs, ys) in lines[size].items():
            style = method_style(method)
            marker = style.marker if len(xs) <= 12 else None
            axes.plot(xs, ys, color=style.light, marker=marker, markeredgewidth=0, label=style.label)
        axes.set_title(size, loc="left", color=INK)
        axes.set_xlabel(axis_names[0])
        finish(axes)
    for axes in grid[:: 2 if len(grid) > 1 else 1]:
        axes.set_ylabel(axis_names[1])
    figure.draw_without_rendering()
    for size, axes in zip(sizes, grid, strict=True):
        styles = [(method_style(key), line) for key, line in lines[size].items()]
        ends = [(xs[-1], ys[-1], style.label, style.light) for style, (xs, ys) in styles]
        label_line_ends(axes, ends, size=8.5)
    best = []
    for size in sizes:
        top = max(lines[size], key=lambda key: lines[size][key][1][0])
        best.append(f"{size}: {method_style(top).label} starts highest, at {lines[size][top][1][0]:.3g}")
    where = title.split(", ")[-1]
    alt = f"{text}, for {where}. {'; '.join(best)}."
    return ReportFigure(name, section, title, f"{text}, by size.", alt, figure)
