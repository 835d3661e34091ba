"""Bars of certified and of clean accuracy, in decreasing order, with 95 % intervals and the paper's results."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.lines import Line2D

from onelip.bench.report.figures.drawing import INK, ReportFigure, horizontal_bars, tell
from onelip.bench.report.intervals import Share
from onelip.bench.report.method_style import method_style
from onelip.bench.report.result_tables import published_result
from onelip.bench.report.trained_models import TrainedModel, by_dataset, longest_budget

_MOST_BARS = 15


def accuracy_bars(models: Sequence[TrainedModel], *, marks: bool = True) -> list[ReportFigure]:
    """Two figures for each data set, of the models with its longest budget; `marks` are the paper's results."""
    figures: list[ReportFigure] = []
    for own in by_dataset(longest_budget(models)).values():
        certified = [(model, model.certified_36) for model in own if model.has_guarantee]
        figures += _bars("certified", "Certified accuracy", certified, marks)
        figures += _bars("clean", "Accuracy", [(model, model.accuracy) for model in own], marks)
    return figures


def _bars(name: str, title: str, found: list[tuple[TrainedModel, Share | None]], marks: bool) -> list[ReportFigure]:
    known = sorted(((model, share) for model, share in found if share), key=lambda pair: -pair[1].mean)
    shown = known[:_MOST_BARS]
    if not shown:
        return []
    bars, printed = [], {}
    for place, (model, share) in enumerate(shown):
        centre, error = 100 * share.mean, share.error
        interval = None if error is None else (centre - 196 * error, centre + 196 * error)
        bars.append((model.label, method_style(model.network.method).light, centre, interval, str(share)))
        paper = published_result(model) if marks else None
        if paper is not None:
            printed[place] = paper.certified_accuracy_36 if name == "certified" else paper.accuracy
    radius = " at radius 36/255 (Euclidean norm)" if name == "certified" else ""
    figure, axes = horizontal_bars(bars, f"{title.lower()} [%]", max(printed.values(), default=None))
    for place, value in printed.items():
        (mark,) = axes.plot(value, place, "D", color="none", markeredgecolor=INK, markeredgewidth=1.2, markersize=6)
        tell(mark, f"{shown[place][0].label} in the paper: {value:.1f}")
    if printed:
        paper_mark = Line2D([], [], marker="D", linestyle="", color="none", markeredgecolor=INK)
        axes.legend([paper_mark], ["published in the paper"], loc="lower right", fontsize=8.5)
    dataset, budget = shown[0][0].network.dataset, shown[0][0].budget.words
    best = "; ".join(f"{model.label} {share} %" for model, share in shown[:3])
    rest = f" The best {_MOST_BARS} of {len(known)}." if len(known) > _MOST_BARS else ""
    return [
        ReportFigure(
            name=f"bars-{name}-{dataset}",
            section="accuracy",
            title=f"{title}, {dataset}",
            caption=f"{title}{radius} on the test set after a training of {budget}. Lines are 95 % intervals; the "
            f"figures are means ± standard errors.{rest}",
            alt=f"{title} on {dataset} in decreasing order: {best}.",
            figure=figure,
        )
    ]
