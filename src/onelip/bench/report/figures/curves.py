"""Lines by method: certified accuracy against budget and radius, the loss, and both over the paper's logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.axes import Axes

from onelip.bench.paper.published import PublishedEpoch, published_curves
from onelip.bench.records.durations import format_duration
from onelip.bench.report.figures.drawing import INK, ReportFigure, draw_mark, line_look, panels, plain_log_ticks, tell
from onelip.bench.report.figures.labels import End, label_line_ends
from onelip.bench.report.method_style import method_style, size_order
from onelip.bench.report.study_rows import Budget
from onelip.bench.report.trained_models import TrainedModel, by_dataset, longest_budget, published_result
from onelip.protocol import RADIUS_NUMERATORS


class _Point(NamedTuple):
    x: float
    y: float
    half: float | None = None
    """Half the 95 % interval of y, where it is known."""


_Panels = dict[str, dict[str, list[_Point]]]
"""Points by size and method."""


@dataclass(frozen=True)
class _Family:
    """What the figures of one kind have in common; `text` is the beginning of captions."""

    name: str
    section: str
    title: str
    text: str
    axis_names: tuple[str, str]


def budget_figures(models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Certified accuracy against the training budget, for data sets with at least two."""
    text = "Certified accuracy at radius 36/255 (Euclidean norm) against the training budget, with 95 % intervals"
    names = ("training budget", "certified accuracy [%]")
    family = _Family("budgets", "accuracy", "Training budget", text, names)
    figures = []
    timed = [m for m in models if m.is_compared and m.has_guarantee and m.budget.hours and m.certified_36]
    for dataset, own in by_dataset(timed).items():
        lines: _Panels = defaultdict(lambda: defaultdict(list))
        for model in sorted(own, key=_seconds):
            if share := model.certified_36:
                point = _Point(_seconds(model), 100 * share.mean, share.half_interval)
                lines[model.network.size_name][model.network.method].append(point)
        ticks = sorted({_seconds(model) for model in own if model.budget.epochs is None})

        def time_axis(axes: Axes, ticks: list[float] = ticks) -> None:
            axes.set_xscale("log")
            if ticks:
                axes.set_xticks(ticks, [Budget(format_duration(tick), None).words for tick in ticks])
                axes.minorticks_off()

        figures += _draw(family, dataset, lines, time_axis)
    return figures


def _seconds(model: TrainedModel) -> float:
    return 3600 * (model.budget.hours or 0.0)


def radius_figures(models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Certified accuracy against the radius; radius 0 is the share that is certified at all."""
    compared = [model for model in longest_budget(models) if len(model.curve) > 2 and model.has_guarantee]
    figures = []
    for dataset, own in by_dataset(compared).items():
        lines: _Panels = defaultdict(dict)
        printed: _Panels = defaultdict(dict)
        for model in own:
            size, method = model.network.size_name, model.network.method
            lines[size][method] = [_Point(255 * radius, 100 * share) for radius, share in model.curve]
            if paper := published_result(model):
                printed[size][method] = [_Point(255 * radius, 100 * share) for radius, share in paper.curve]

        def radius_axis(axes: Axes) -> None:
            axes.set_xticks([0, *RADIUS_NUMERATORS])
            axes.set_xlim(0, RADIUS_NUMERATORS[-1])

        text = "Certified accuracy against the radius of the perturbation in the Euclidean norm, for images in [0, 1]"
        text += "; hollow marks are the paper's" if printed else ""
        names = ("255 x radius (Euclidean norm)", "certified accuracy [%]")
        family = _Family("radii", "accuracy", "Certified accuracy by radius", text, names)
        figures += _draw(family, dataset, lines, radius_axis, printed)
    return figures


def loss_figures(models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Training loss against the share of the training, of the first seed of each model with the longest budget."""
    text = "Training loss of each epoch against the share of the training that is done, first seed"
    family = _Family("loss", "training", "Loss", text, ("share of the training", "loss"))
    figures = []
    for dataset, own in by_dataset(longest_budget(models)).items():
        lines: _Panels = defaultdict(dict)
        for model in own:
            if losses := model.runs[0].losses:
                lines[model.network.size_name][model.network.method] = [_Point(x, y) for x, y in losses]
        figures += _draw(family, dataset, lines, lambda axes: axes.set_xlim(0, 1))
    return figures


def _draw(
    family: _Family, dataset: str, lines: _Panels, finish: Callable[[Axes], object], printed: _Panels | None = None
) -> list[ReportFigure]:
    """The figure, if any line of it has two points."""
    if all(len(points) < 2 for own in lines.values() for points in own.values()):
        return []
    sizes = sorted(lines, key=size_order)
    figure, grid = panels(len(sizes))
    for size, axes in zip(sizes, grid, strict=True):
        _draw_lines(axes, size, lines[size], is_by_radius=family.name == "radii")
        for method, points in (printed or {}).get(size, {}).items():
            style = method_style(method)
            hollow = line_look(style, linestyle="", fillstyle="none", markeredgewidth=1.4)
            for x, y, _ in points:
                tell(axes.plot(x, y, **hollow, clip_on=False)[0], f"{style.label} {size} in the paper: {y:.1f}")
        axes.set_title(size, loc="left", color=INK)
        axes.set_xlabel(family.axis_names[0])
        finish(axes)
    if family.name != "loss":  # the panels share it: before all are drawn, it would fix the top of the first
        grid[0].set_ylim(bottom=0)
    for axes in grid[:: 2 if len(grid) > 1 else 1]:
        axes.set_ylabel(family.axis_names[1])
    ends, tops = {}, []
    for size, axes in zip(sizes, grid, strict=True):
        lasts = [(method_style(method), points[-1]) for method, points in lines[size].items()]
        ends[axes] = [(x, y, style.label, style.light) for style, (x, y, _) in lasts]
        top = max(lines[size], key=lambda method: lines[size][method][0].y)
        tops.append(f"{size}: {method_style(top).label} starts highest, at {lines[size][top][0].y:.1f}")
    label_line_ends(figure, ends)
    alt = f"{family.text}, for {dataset}. {'; '.join(tops)}."
    title, caption = f"{family.title}, {dataset}", f"{family.text}, by size."
    return [ReportFigure(f"{family.name}-{dataset}", family.section, title, caption, alt, figure)]


def _draw_lines(axes: Axes, size: str, lines: dict[str, list[_Point]], *, is_by_radius: bool) -> None:
    """One line per method; one of few points has markers with intervals."""
    for method, points in lines.items():
        style, few = method_style(method), len(points) <= 12
        (drawn,) = axes.plot([p.x for p in points], [p.y for p in points], **line_look(style, markers=False))
        words = f"from {points[0].y:.1f} to {points[-1].y:.1f}"
        if is_by_radius and not few:
            told = [min(points, key=lambda point: abs(point.x - tick)) for tick in (0, *RADIUS_NUMERATORS)]
            words = ", ".join(f"{y:.1f} at {x:.0f}/255" for x, y, _ in told)
        tell(drawn, f"{style.label} {size}: {words}")
        for x, y, half in points if few else ():
            words = f"{style.label} {size}: {y:.1f}" + ("" if half is None else f" ± {half:.1f} (95 %)")
            draw_mark(axes, x, y, style, words, None if half is None else (y - half, y + half), clip_on=False)


DATASET = "cifar10"
"""The data set of the published logs."""


def published_curve_figures(models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """Our trainings over the logs of the paper's 24-hour runs, one figure for each size: loss and certified accuracy.

    Method, size, data set and recipe must match: with another recipe, loss and schedule are others too. The
    longest run of a method counts.
    """
    published: dict[tuple[str, str], list[PublishedEpoch]] = defaultdict(list)
    for row in published_curves():
        published[row.key, row.size].append(row)
    longest: dict[str, dict[str, TrainedModel]] = defaultdict(dict)
    for model in models:
        size, method = model.network.size_name, model.network.method
        usual = model.is_compared and model.network.dataset == DATASET
        comparable = usual and model.spec.recipe == "paper" and (method, size) in published and model.runs[0].log
        before = longest[size].get(method)
        if comparable and (not before or _epochs(model) > _epochs(before)):
            longest[size][method] = model
    return [
        _figure(size, own, {method: published[method, size] for method in own}) for size, own in longest.items() if own
    ]


def _epochs(model: TrainedModel) -> float:
    return max(entry.epoch for entry in model.runs[0].log)


def _certified(model: TrainedModel) -> list[tuple[float, float]]:
    """Estimates on the validation images, where there are any, and the proven share of the test images at the end."""
    found = [(entry.epoch, 100 * entry.certified) for entry in model.runs[0].log if entry.certified is not None]
    return [*found, (_epochs(model), 100 * model.certified_36.mean)] if model.certified_36 else found


_Curve = tuple[str, Callable[[TrainedModel], list[tuple[float, float]]], Callable[[PublishedEpoch], float]]
_CURVES: tuple[_Curve, ...] = (
    ("training loss", lambda m: [(entry.epoch, entry.loss) for entry in m.runs[0].log], lambda row: row.train_loss),
    ("certified accuracy at 36/255 [%]", _certified, lambda row: 100 * row.certified_36),
)
"""Title, points of ours by epoch, and the published value of an epoch."""


def _figure(size: str, models: dict[str, TrainedModel], published: dict[str, list[PublishedEpoch]]) -> ReportFigure:
    figure, grid = panels(2, share=False)
    ends: dict[Axes, list[End]] = {}
    for axes, (title, ours_of, value_of) in zip(grid, _CURVES, strict=True):
        ends[axes] = []
        for method, model in models.items():
            style, ours = method_style(method), ours_of(model)
            until = max(10.0, 2 * _epochs(model))
            theirs = [(row.epoch, value_of(row)) for row in published[method] if row.epoch <= until]
            axes.plot(*zip(*theirs, strict=True), color=style.light, linestyle=(0, (4, 2)), linewidth=1.1)
            if ours:
                (line,) = axes.plot(*zip(*ours, strict=True), **line_look(style, linestyle="-"))
                tell(line, f"{style.label}: {ours[-1][1]:.3g} after {ours[-1][0]:.3g} epochs")
            ends[axes].append((*theirs[-1], style.label, style.light))
        axes.set_xscale("log")
        axes.set_xlabel("epoch")
        axes.set_title(title, loc="left")
        plain_log_ticks(axes.xaxis)
    label_line_ends(figure, ends)
    names = ", ".join(method_style(method).label for method in models)
    return ReportFigure(
        name=f"published-curves-{size.lower()}",
        section="reproduction",
        title=f"Our trainings over the published ones, {DATASET}, {size}",
        caption="Marks with solid lines are ours (certified accuracy: estimates on the validation images, where there "
        "are any, and the proven share of the test images at the end), dashed lines the logs of the paper's 24-hour "
        "runs. Only trainings with the paper's recipe are shown; those of `onelip reproduce` have its schedule, too.",
        alt=f"Training loss and certified accuracy by epoch, ours and published, for {names}.",
        figure=figure,
    )
