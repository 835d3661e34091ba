"""Our trainings over the logs of the paper's 24-hour runs, epoch by epoch, where both trained the same.

Method, size, data set and recipe must match: with another recipe, loss and schedule are others too, and the curves
would mean nothing beside these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes

from onelip.bench.published import PublishedEpoch, published_curves
from onelip.bench.report.figures.cost_lines import plain_log_ticks
from onelip.bench.report.figures.direct_labels import label_line_ends
from onelip.bench.report.figures.drawing import ReportFigure, line_look, panels, tell
from onelip.bench.report.method_style import method_style
from onelip.bench.report.trained_models import TrainedModel

DATASET = "cifar10"
"""The data set of the published logs."""

_Points = list[tuple[float, float]]


def published_curve_figures(models: Sequence[TrainedModel]) -> list[ReportFigure]:
    """One figure for each size: training loss, and certified accuracy at 36/255. The longest run of a method counts."""
    published: dict[tuple[str, str], list[PublishedEpoch]] = defaultdict(list)
    for row in published_curves():
        published[row.key, row.size].append(row)
    longest: dict[str, dict[str, TrainedModel]] = defaultdict(dict)
    for model in models:
        size, method = model.network.size_name, model.network.method
        usual = model.is_usual and model.network.kernel_size == 3 and model.network.dataset == DATASET
        before, run = longest[size].get(method), model.runs[0]
        comparable = usual and run.recipe == "paper" and (method, size) in published and run.log
        if comparable and (not before or _epochs(model) > _epochs(before)):
            longest[size][method] = model
    return [
        _figure(size, own, {method: published[method, size] for method in own}) for size, own in longest.items() if own
    ]


def _epochs(model: TrainedModel) -> float:
    return max(entry.epoch for entry in model.runs[0].log)


def _figure(size: str, models: dict[str, TrainedModel], published: dict[str, list[PublishedEpoch]]) -> ReportFigure:
    figure, (losses, shares) = panels(2, share=False)
    for method, model in models.items():
        until = max(10.0, 2 * _epochs(model))
        rows = [row for row in published[method] if row.epoch <= until]
        log = model.runs[0].log
        certified = [(entry.epoch, 100 * entry.certified) for entry in log if entry.certified is not None]
        if model.certified_36 is not None:
            certified.append((_epochs(model), 100 * model.certified_36.mean))
        _plot(losses, method, [(entry.epoch, entry.loss) for entry in log], [(r.epoch, r.train_loss) for r in rows])
        _plot(shares, method, certified, [(r.epoch, 100 * r.certified_36) for r in rows])
    for axes, name in ((losses, "training loss"), (shares, "certified accuracy at 36/255 [%]")):
        axes.set_xscale("log")
        axes.set_xlabel("epoch")
        axes.set_title(name, loc="left")
        plain_log_ticks(axes.xaxis)
    figure.draw_without_rendering()
    for axes, last in ((losses, lambda r: r.train_loss), (shares, lambda r: 100 * r.certified_36)):
        ends = []
        for method, model in models.items():
            style, until = method_style(method), max(10.0, 2 * _epochs(model))
            row = [row for row in published[method] if row.epoch <= until][-1]
            ends.append((row.epoch, last(row), style.label, style.light))
        label_line_ends(axes, ends, size=8.5)
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


def _plot(axes: Axes, method: str, ours: _Points, theirs: _Points) -> None:
    style = method_style(method)
    axes.plot(*zip(*theirs, strict=True), color=style.light, linestyle=(0, (4, 2)), linewidth=1.1)
    if ours:
        (line,) = axes.plot(*zip(*ours, strict=True), **line_look(style, linestyle="-"))
        tell(line, f"{style.label}: {ours[-1][1]:.3g} after {ours[-1][0]:.3g} epochs")
