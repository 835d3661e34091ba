"""Lines by method, one panel per size: certified accuracy against budget and radius, and the loss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from matplotlib.axes import Axes

from onelip.bench.report.figures.direct_labels import label_line_ends
from onelip.bench.report.figures.drawing import INK, ReportFigure, line_look, panels, tell
from onelip.bench.report.method_style import method_style, size_order
from onelip.bench.report.result_tables import published_result
from onelip.bench.report.study_rows import Budget
from onelip.bench.report.trained_models import TrainedModel, by_dataset, longest_budget
from onelip.bench.runs.durations import format_duration
from onelip.protocol import RADIUS_NUMERATORS


@dataclass(frozen=True)
class _Line:
    """Points (x, y) of one method in one panel, with half the 95 % interval of y where it is known."""

    points: list[tuple[float, float, float | None]]


_Panels = dict[str, dict[str, _Line]]


def budget_figures(models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Certified accuracy against the training budget, for data sets with at least two."""
    timed = [m for m in models if _is_timed(m)]
    figures = []
    for dataset, own in by_dataset(timed).items():
        lines: _Panels = defaultdict(dict)
        for model in sorted(own, key=lambda m: m.budget.hours or 0.0):
            share, line = model.certified_36, lines[model.network.size_name].setdefault(model.network.method, _Line([]))
            if share is not None:
                line.points.append((3600 * (model.budget.hours or 0.0), 100 * share.mean, _half(share.error)))
        if all(len(line.points) < 2 for part in lines.values() for line in part.values()):
            continue
        ticks = sorted({3600 * (model.budget.hours or 0.0) for model in own if model.budget.epochs is None})

        def time_axis(axes: Axes, ticks: list[float] = ticks) -> None:
            axes.set_xscale("log")
            if ticks:
                axes.set_xticks(ticks, [Budget(format_duration(tick), None).words for tick in ticks])
                axes.minorticks_off()

        text = "Certified accuracy at radius 36/255 (Euclidean norm) against the training budget, with 95 % intervals"
        title = f"Training budget, {dataset}"
        names = ("training budget", "certified accuracy [%]")
        figures.append(_draw(f"budgets-{dataset}", "accuracy", title, text, lines, names, time_axis))
    return figures


def _is_timed(model: TrainedModel) -> bool:
    compared = model.network.kernel_size == 3 and model.has_guarantee and model.is_usual
    return bool(compared and model.budget.hours and model.certified_36)


def _half(error: float | None) -> float | None:
    return None if error is None else 196 * error


def radius_figures(models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Certified accuracy against the radius; radius 0 is the share that is certified at all."""
    compared = [model for model in longest_budget(models) if len(model.curve) > 2 and model.has_guarantee]
    figures = []
    for dataset, own in by_dataset(compared).items():
        lines: _Panels = defaultdict(dict)
        printed: _Panels = defaultdict(dict)
        for model in own:
            points = [(255 * radius, 100 * share, None) for radius, share in model.curve]
            lines[model.network.size_name][model.network.method] = _Line(list(points))
            if paper := published_result(model):
                known = _Line([(0, paper.accuracy, None), (36, paper.certified_accuracy_36, None)])
                printed[model.network.size_name][model.network.method] = known

        def radius_axis(axes: Axes) -> None:
            axes.set_xticks([0, *RADIUS_NUMERATORS])
            axes.set_xlim(0, RADIUS_NUMERATORS[-1])

        text = "Certified accuracy against the radius of the perturbation in the Euclidean norm, for images in [0, 1]"
        text += "; hollow marks are the paper's" if printed else ""
        names = ("255 x radius (Euclidean norm)", "certified accuracy [%]")
        title = f"Certified accuracy by radius, {dataset}"
        figures.append(_draw(f"radii-{dataset}", "accuracy", title, text, lines, names, radius_axis, printed))
    return figures


def loss_figures(models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Training loss against the share of the training, of the first seed of each model with the longest budget."""
    figures = []
    for dataset, own in by_dataset(longest_budget(models)).items():
        lines: _Panels = defaultdict(dict)
        for model in own:
            if losses := model.runs[0].losses:
                line = _Line([(x, y, None) for x, y in losses])
                lines[model.network.size_name][model.network.method] = line
        if any(len(line.points) > 1 for part in lines.values() for line in part.values()):
            text = "Training loss of each epoch against the share of the training that is done, first seed"
            names = ("share of the training", "loss")
            title = f"Loss, {dataset}"
            figures.append(
                _draw(f"loss-{dataset}", "training", title, text, lines, names, lambda axes: axes.set_xlim(0, 1))
            )
    return figures


def _draw(
    name: str,
    section: str,
    title: str,
    text: str,
    lines: _Panels,
    axis_names: tuple[str, str],
    finish: Callable[[Axes], object],
    printed: Mapping[str, Mapping[str, _Line]] = MappingProxyType({}),
) -> ReportFigure:
    sizes = sorted(lines, key=size_order)
    figure, grid = panels(len(sizes))
    for size, axes in zip(sizes, grid, strict=True):
        for method, line in lines[size].items():
            style, few = method_style(method), len(line.points) <= 12
            xs, ys = [x for x, _, _ in line.points], [y for _, y, _ in line.points]
            (drawn,) = axes.plot(xs, ys, **line_look(style, markers=False))
            told = [min(line.points, key=lambda point: abs(point[0] - tick)) for tick in (0, *RADIUS_NUMERATORS)]
            values = ", ".join(f"{y:.1f} at {x:.0f}/255" for x, y, _ in told)
            tell(drawn, f"{style.label} {size}: " + (f"from {ys[0]:.1f} to {ys[-1]:.1f}" if few else values))
            for x, y, half in line.points if few else ():
                (mark,) = axes.plot(x, y, **line_look(style), clip_on=False)
                tell(mark, f"{style.label} {size}: {y:.1f}" + (f" ± {half:.1f} (95 %)" if half is not None else ""))
                if half is not None:
                    axes.errorbar(x, y, yerr=half, ecolor=style.light, elinewidth=0.9, fmt="none")
        for method, line in printed.get(size, {}).items():
            style = method_style(method)
            hollow = line_look(style, linestyle="", fillstyle="none", markeredgewidth=1.4)
            for x, y, _ in line.points:
                tell(axes.plot(x, y, **hollow, clip_on=False)[0], f"{style.label} {size} in the paper: {y:.1f}")
        axes.set_title(size, loc="left", color=INK)
        axes.set_xlabel(axis_names[0])
        finish(axes)
    if axis_names[1] != "loss":  # the panels share it: before all are drawn, it would fix the top of the first
        grid[0].set_ylim(bottom=0)
    for axes in grid[:: 2 if len(grid) > 1 else 1]:
        axes.set_ylabel(axis_names[1])
    figure.draw_without_rendering()
    for size, axes in zip(sizes, grid, strict=True):
        styles = [(method_style(method), line.points[-1]) for method, line in lines[size].items()]
        label_line_ends(axes, [(x, y, style.label, style.light) for style, (x, y, _) in styles], size=8.5)
    tops = []
    for size in sizes:
        top = max(lines[size], key=lambda method: lines[size][method].points[0][1])
        tops.append(f"{size}: {method_style(top).label} starts highest, at {lines[size][top].points[0][1]:.1f}")
    alt = f"{text}, for {title.split(', ')[-1]}. {'; '.join(tops)}."
    return ReportFigure(name, section, title, f"{text}, by size.", alt, figure)
