"""Bars of certified and of clean accuracy, in decreasing order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onelip.bench.report.figures.canvas import INK, WIDTH, ReportFigure, new_figure
from onelip.bench.report.style import BASELINES, method_style
from onelip.bench.report.summaries import ModelSummary, Spread, longest_budget

_MOST_BARS = 15


def accuracy_bars(models: Sequence[ModelSummary]) -> list[ReportFigure]:
    """Two figures for each data set, of the models with its longest budget."""
    compared = longest_budget(models)
    figures: list[ReportFigure] = []
    for dataset in sorted({model.dataset for model in compared}):
        own = [model for model in compared if model.dataset == dataset]
        guaranteed = [model for model in own if model.method not in BASELINES]
        figures += _bars("certified", "Certified accuracy", dataset, guaranteed, lambda model: model.certified.get(36))
        figures += _bars("clean", "Clean accuracy", dataset, own, lambda model: model.accuracy)
    return figures


def _bars(
    name: str, title: str, dataset: str, models: list[ModelSummary], value: Callable[[ModelSummary], Spread | None]
) -> list[ReportFigure]:
    found = [(model, spread) for model in models if (spread := value(model)) is not None]
    shown = sorted(found, key=lambda pair: -pair[1].mean)[:_MOST_BARS]
    if not shown:
        return []
    figure = new_figure(WIDTH, 1.0 + 0.27 * len(shown))
    axes = figure.subplots()
    for place, (model, spread) in enumerate(shown):
        deviation = None if spread.deviation is None else 100 * spread.deviation
        mean = 100 * spread.mean
        axes.barh(
            place, mean, xerr=deviation, color=method_style(model.method).light, height=0.7, ecolor=INK, capsize=2
        )
        axes.annotate(
            f"{mean:.1f}",
            (mean + (deviation or 0), place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set_yticks(range(len(shown)), [_label(model) for model, _ in shown])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(100 * (spread.mean + (spread.deviation or 0)) for _, spread in shown) + 1e-9)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    radius = " at radius 36/255" if name == "certified" else ""
    axes.set_xlabel(f"{title.lower()}{radius} [%]")
    best = "; ".join(f"{_label(model)} {100 * spread.mean:.1f} %" for model, spread in shown[:3])
    rest = f" The best {_MOST_BARS} of {len(found)}." if len(found) > _MOST_BARS else ""
    return [
        ReportFigure(
            name=f"bars-{name}-{dataset}",
            section="accuracy",
            title=f"{title}, {dataset}",
            caption=f"{title}{radius} on the test set in decreasing order, budget {models[0].budget}.{rest}",
            alt=f"{title} on {dataset} in decreasing order: {best}.",
            figure=figure,
        )
    ]


def _label(model: ModelSummary) -> str:
    return f"{method_style(model.method).label} {model.size}"
