"""Every table and figure of the comparison paper: the published one, and ours from the records of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from onelip.bench.report.cost_tables import Counts, layer_theory_table
from onelip.bench.report.figures.accuracies import accuracy_bars
from onelip.bench.report.figures.cost_lines import cost_figures, published_cost_figures
from onelip.bench.report.figures.curves import budget_figures
from onelip.bench.report.figures.drawing import ReportFigure, figure_style, render
from onelip.bench.report.figures.layer_lines import draw_layers
from onelip.bench.report.figures.radar import published_figure, study_figure, study_radar
from onelip.bench.report.page import PageContent, Part, Section, Side, write_page
from onelip.bench.report.paper_tables import (
    architecture_tables,
    budget_table,
    gradient_tables,
    own_epoch_table,
    own_literature_table,
    published_epoch_table,
    published_literature_table,
)
from onelip.bench.report.report_table import ReportTable
from onelip.bench.report.result_tables import accuracy_table, ranking_table
from onelip.bench.report.study_rows import DiagnosedNetwork, StudyResults
from onelip.bench.report.trained_models import (
    TrainedModel,
    all_settings,
    by_dataset,
    chosen_models,
    longest_budget,
    published_models,
)
from onelip.bench.terminal import visible

PAGE = "paper.html"

_COMPARE, _DEFECTS = "onelip compare --preset paper", "onelip reproduce --defects"
_TIME, _MEMORY = "onelip measure time --sizes XS S M L", "onelip measure memory"


@dataclass(frozen=True)
class PaperSources:
    """What the items are made of."""

    study: StudyResults
    counts: Counts

    @cached_property
    def models(self) -> list[TrainedModel]:
        """One setting per model of the study."""
        return chosen_models(all_settings(self.study.trained))

    def diagnosed(self, method: str) -> list[DiagnosedNetwork]:
        """A network of this method as published, and one of onelip's own: the last by name."""
        last = {row.setting: row for row in self.study.diagnosed if row.network.method == method}
        return [last[setting] for setting in ("published", "own") if setting in last]


Sides = tuple[Sequence[Part], Sequence[Part]]
"""What the paper printed, and ours."""

Build = Callable[[PaperSources], Sides]


@dataclass(frozen=True)
class PaperItem:
    """One float of the paper, `make` is the command whose records ours is made from."""

    name: str
    place: str
    title: str
    make: str
    build: Build

    @property
    def note(self) -> str:
        """What the published side is, where the paper draws something and prints no numbers."""
        words = _PUBLISHED_SIDE.get(self.name)
        return f"Note: the paper draws it and prints no numbers; the published side is {words}." if words else ""


def _of_models(build: Callable[[Sequence[TrainedModel], str], Sequence[Part]], *, failed: bool = False) -> Build:
    """From the published models and from ours alike; the other argument is the name of the side."""
    return lambda given: (build(published_models(failed=failed), "published"), build(given.models, "ours"))


def _figures(build: Build, *names: str) -> Build:
    """Of what `build` draws, the figures whose names begin so; the published ones get names of their own."""

    def chosen(given: PaperSources) -> Sides:
        printed, ours = ([figure for figure in side if figure.name.startswith(names)] for side in build(given))
        return [replace(figure, name=f"{figure.name}-published") for figure in printed], ours

    return chosen


def _radar(given: PaperSources) -> Sides:
    ours = study_radar(given.study, given.models)
    return published_figure("The paper's values"), study_figure("Ours", ours)


def _theory(given: PaperSources) -> Sides:
    printed = layer_theory_table(given.counts, "published", "Costs of the published algorithms")
    return [printed], [layer_theory_table(given.counts, "onelip", "Costs where onelip computes otherwise")]


def _costs(given: PaperSources) -> Sides:
    return published_cost_figures(), cost_figures(given.study)


def _eco(given: PaperSources) -> Sides:
    """The published ECO and ours, drawn alike: both from records."""
    parts: dict[str, list[Part]] = {"published": [], "own": []}
    for row in given.diagnosed("eco"):
        words = "as published" if row.setting == "published" else "in onelip"
        largest = max(row.known("norm_estimate"), default=0.0)
        figure = ReportFigure(
            name=f"eco-{row.setting}",
            section="",
            title=f"ECO {words}, {row.network.size_name}",
            caption="Left: batch activation variance after each layer, which a 1-Lipschitz layer cannot increase. "
            f"Right: product of the layers' norms by power iteration; the largest norm is {largest:.3f}.",
            alt=f"Variance and product of norms by layer of ECO {words}.",
            figure=draw_layers({"eco": row.layers}),
        )
        parts[row.setting].append(figure)
    return parts["published"], parts["own"]


def _bars(models: Sequence[TrainedModel], side: str) -> Sequence[Part]:
    return accuracy_bars(models, marks=side == "ours")


def _budget_lines(models: Sequence[TrainedModel], side: str) -> Sequence[Part]:
    return budget_figures(models)


def _results(models: Sequence[TrainedModel], side: str) -> Sequence[Part]:
    """The report's tables, of the longest budgets."""
    compared = by_dataset(model for model in longest_budget(models) if model.has_guarantee)
    return [accuracy_table(dataset, own, f"results-{dataset}-{side}") for dataset, own in compared.items()]


def _ranking(models: Sequence[TrainedModel], side: str) -> Sequence[Part]:
    return [ranking_table(longest_budget(models), f"ranking-{side}")]


def _budgets(dataset: str, kernel_size: int = 3) -> Build:
    def table(models: Sequence[TrainedModel], side: str) -> Sequence[Part]:
        chosen = [m for m in models if (m.network.dataset, m.network.kernel_size) == (dataset, kernel_size)]
        name = f"{dataset}-{kernel_size}x{kernel_size}-{side}"
        return [budget_table(name, f"{side.capitalize()}, {dataset}", chosen)]

    return _of_models(table, failed=True)


def _sandwich(given: PaperSources) -> Sides:
    return gradient_tables(given.diagnosed("sandwich"))


def _literature(given: PaperSources) -> Sides:
    return [published_literature_table()], [own_literature_table(given.models)]


def _architecture(given: PaperSources) -> Sides:
    return architecture_tables()


def _epochs(given: PaperSources) -> Sides:
    return [published_epoch_table()], [own_epoch_table(given.study)]


_PUBLISHED_SIDE = {
    "radar": "its tables, ranked as ours are",
    "training-time": "its table of epochs in two hours",
    "throughput": "images per second in its logs, for XS, S and M",
    "memory": "its formulas for training; for inference there are none",
    "eco": "the published layer, run here",
    "tiny-imagenet-costs": "epochs in two hours and formulas; throughput is nowhere",
}
_ON_CIFAR, _ON_TINY = (
    [f"{cost}-{family}" for cost in ("training-time", "inference-throughput", "training-memory", "inference-memory")]
    for family in ("cifar", "tiny")
)
_ALL_TINY = f"{_TIME} --datasets tiny-imagenet; {_MEMORY} --datasets tiny-imagenet"
_BY_BARS, _BY_BUDGET = _of_models(_bars), _of_models(_budget_lines)

ITEMS = (
    PaperItem("radar", "Figure 1", "Radar plot", _COMPARE, _radar),
    PaperItem("complexity", "Table 1", "Complexity and memory", "onelip theory --counted", _theory),
    PaperItem("training-time", "Figure 2", "Training time per epoch", _TIME, _figures(_costs, _ON_CIFAR[0])),
    PaperItem("throughput", "Figure 3", "Inference throughput", _TIME, _figures(_costs, _ON_CIFAR[1])),
    PaperItem("memory", "Figure 4", "Memory", f"{_MEMORY} --sizes XS S M L", _figures(_costs, *_ON_CIFAR[2:])),
    PaperItem(
        "certified",
        "Figure 5",
        "Certified accuracy in decreasing order",
        _COMPARE,
        _figures(_BY_BARS, "bars-certified"),
    ),
    PaperItem("results", "Table 2", "Results after 24 hours", _COMPARE, _of_models(_results)),
    PaperItem("ranking", "Section 5.3", "Ranking of the methods", _COMPARE, _of_models(_ranking)),
    PaperItem("eco", "Figure 6", "Variance and norm of ECO", _DEFECTS, _eco),
    PaperItem("sandwich", "Table 3", "Vanishing gradients of Sandwich", _DEFECTS, _sandwich),
    PaperItem("literature", "Table 4", "State of the art on CIFAR-10", _COMPARE, _literature),
    PaperItem("architecture", "Tables 5 to 7", "Architecture, block and sizes", "none: from the code", _architecture),
    PaperItem("epochs", "Table 8", "Epochs in two hours", _TIME, _epochs),
    PaperItem(
        "budgets", "Figure 7", "Certified accuracy by training budget", _COMPARE, _figures(_BY_BUDGET, "budgets")
    ),
    PaperItem(
        "tiny-imagenet-costs", "Figure 8", "Time and memory on Tiny ImageNet", _ALL_TINY, _figures(_costs, *_ON_TINY)
    ),
    PaperItem("accuracy", "Figure 9", "Clean accuracy in decreasing order", _COMPARE, _figures(_BY_BARS, "bars-clean")),
    PaperItem("cifar10", "Table 9", "All budgets on CIFAR-10", _COMPARE, _budgets("cifar10")),
    PaperItem("cifar100", "Table 10", "All budgets on CIFAR-100", _COMPARE, _budgets("cifar100")),
    PaperItem("tiny-imagenet", "Table 11", "All budgets on Tiny ImageNet", _COMPARE, _budgets("tiny-imagenet")),
    PaperItem(
        "kernel-1x1", "Table 12", "1 x 1 kernels on CIFAR-10", f"{_COMPARE} --kernel-sizes 3 1", _budgets("cifar10", 1)
    ),
)
"""In the order of the paper; floats are numbered by their place in its source."""


def write_paper(
    items: Sequence[PaperItem], given: PaperSources, out: Path, tell: Callable[[str], None]
) -> list[PaperItem]:
    """Write `paper.html` and, in `published/` and `ours/`, every part as files.

    `tell` hears what is being made. Returns the items that the study has no records for.
    """
    sections, absent, drawn = [Section("overview", "Overview", "")], [], {}
    with figure_style():
        for number, item in enumerate(items, 1):
            tell(f"{item.name}, {number} of {len(items)}")
            sides = []
            for name, parts in zip(("published", "ours"), item.build(given), strict=True):
                figures = [part for part in parts if isinstance(part, ReportFigure)]
                tables = [part for part in parts if isinstance(part, ReportTable) and part.rows]
                drawn |= {figure.name: render(figure) for figure in figures}
                empty = "Nothing was published." if name == "published" else f"No records: `{item.make}` makes them."
                sides.append(Side(figures, tables, name, empty, name, name))
            absent += [] if sides[1].figures or sides[1].tables else [item]
            sections.append(Section(item.name, item.place, f"{item.place}: {item.title}", sides, item.note))
    content = PageContent(
        title="Tables and figures of the paper beside ours",
        subtitle=f"Records in {visible(given.study.folder.name)}",
        introduction="The paper is {paper}.",
        sections=sections,
        files="Every table is beside this page as CSV, Markdown and LaTeX, every figure as SVG, PDF and PNG, in the "
        "folders `published/` and `ours/`.",
    )
    write_page(out / PAGE, content, drawn)
    return absent
