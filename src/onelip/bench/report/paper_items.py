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


@dataclass(frozen=True)
class PaperItem:
    """One float of the paper, `make` is the command whose records ours is made from."""

    name: str
    place: str
    title: str
    make: str

    @property
    def note(self) -> str:
        """What the published side is, where the paper draws something and prints no numbers."""
        words = _PUBLISHED_SIDE.get(self.name)
        return f"Note: the paper draws it and prints no numbers; the published side is {words}." if words else ""

    def build(self, given: PaperSources) -> Sides:
        """Figures and tables of both sides."""
        printed, ours, study = published_models(), given.models, given.study
        match self.name:
            case "radar":
                return published_figure("The paper's values"), study_figure("Ours", study_radar(study, ours))
            case "complexity":
                theirs = layer_theory_table(given.counts, "published", "Costs of the published algorithms")
                return [theirs], [layer_theory_table(given.counts, "onelip", "Costs where onelip computes otherwise")]
            case "training-time" | "throughput" | "memory" | "tiny-imagenet-costs":
                return _figures(_COSTS[self.name], published_cost_figures(), cost_figures(study))
            case "certified" | "accuracy":
                names = ("bars-certified" if self.name == "certified" else "bars-clean",)
                return _figures(names, accuracy_bars(printed, marks=False), accuracy_bars(ours))
            case "budgets":
                return _figures(("budgets",), budget_figures(printed), budget_figures(ours))
            case "results":
                return _results(printed, "published"), _results(ours, "ours")
            case "ranking":
                theirs = ranking_table(longest_budget(printed), "ranking-published")
                return [theirs], [ranking_table(longest_budget(ours), "ranking-ours")]
            case "eco":
                return _eco(given)
            case "sandwich":
                return gradient_tables(given.diagnosed("sandwich"))
            case "literature":
                return [published_literature_table()], [own_literature_table(ours)]
            case "architecture":
                return architecture_tables()
            case "epochs":
                return [published_epoch_table()], [own_epoch_table(study)]
            case "kernel-1x1":
                return _budgets(ours, "cifar10", 1)
            case dataset:
                return _budgets(ours, dataset)


def _figures(names: tuple[str, ...], printed: Sequence[ReportFigure], ours: Sequence[ReportFigure]) -> Sides:
    """Those whose names begin so; the published ones get names of their own."""
    theirs = [replace(fig, name=f"{fig.name}-published") for fig in printed if fig.name.startswith(names)]
    return theirs, [figure for figure in ours if figure.name.startswith(names)]


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


def _results(models: Sequence[TrainedModel], side: str) -> Sequence[Part]:
    """The report's tables, of the longest budgets."""
    compared = by_dataset(model for model in longest_budget(models) if model.has_guarantee)
    return [accuracy_table(dataset, own, f"results-{dataset}-{side}") for dataset, own in compared.items()]


def _budgets(ours: Sequence[TrainedModel], dataset: str, kernel_size: int = 3) -> Sides:
    printed, own = (
        [
            budget_table(
                f"{dataset}-{kernel_size}x{kernel_size}-{side}",
                f"{side.capitalize()}, {dataset}",
                [m for m in models if (m.network.dataset, m.network.kernel_size) == (dataset, kernel_size)],
            )
        ]
        for side, models in (("published", published_models(failed=True)), ("ours", ours))
    )
    return printed, own


_PUBLISHED_SIDE = {
    "radar": "its tables, ranked as ours are",
    "training-time": "its table of epochs in two hours",
    "throughput": "images per second in its logs, for XS, S and M",
    "memory": "its formulas for training; for inference there are none",
    "eco": "the published layer, run here",
    "tiny-imagenet-costs": "epochs in two hours and formulas; throughput is nowhere",
}
_COSTS = {
    "training-time": ("training-time-cifar",),
    "throughput": ("inference-throughput-cifar",),
    "memory": ("training-memory-cifar", "inference-memory-cifar"),
    "tiny-imagenet-costs": tuple(
        f"{cost}-tiny" for cost in ("training-time", "inference-throughput", "training-memory", "inference-memory")
    ),
}
"""How the names of the figures of costs begin."""

_ALL_TINY = f"{_TIME} --datasets tiny-imagenet; {_MEMORY} --datasets tiny-imagenet"

ITEMS = (
    PaperItem("radar", "Figure 1", "Radar plot", _COMPARE),
    PaperItem("complexity", "Table 1", "Complexity and memory", "onelip theory --counted"),
    PaperItem("training-time", "Figure 2", "Training time per epoch", _TIME),
    PaperItem("throughput", "Figure 3", "Inference throughput", _TIME),
    PaperItem("memory", "Figure 4", "Memory", f"{_MEMORY} --sizes XS S M L"),
    PaperItem("certified", "Figure 5", "Certified accuracy in decreasing order", _COMPARE),
    PaperItem("results", "Table 2", "Results after 24 hours", _COMPARE),
    PaperItem("ranking", "Section 5.3", "Ranking of the methods", _COMPARE),
    PaperItem("eco", "Figure 6", "Variance and norm of ECO", _DEFECTS),
    PaperItem("sandwich", "Table 3", "Vanishing gradients of Sandwich", _DEFECTS),
    PaperItem("literature", "Table 4", "State of the art on CIFAR-10", _COMPARE),
    PaperItem("architecture", "Tables 5 to 7", "Architecture, block and sizes", "none: from the code"),
    PaperItem("epochs", "Table 8", "Epochs in two hours", _TIME),
    PaperItem("budgets", "Figure 7", "Certified accuracy by training budget", _COMPARE),
    PaperItem("tiny-imagenet-costs", "Figure 8", "Time and memory on Tiny ImageNet", _ALL_TINY),
    PaperItem("accuracy", "Figure 9", "Clean accuracy in decreasing order", _COMPARE),
    PaperItem("cifar10", "Table 9", "All budgets on CIFAR-10", _COMPARE),
    PaperItem("cifar100", "Table 10", "All budgets on CIFAR-100", _COMPARE),
    PaperItem("tiny-imagenet", "Table 11", "All budgets on Tiny ImageNet", _COMPARE),
    PaperItem("kernel-1x1", "Table 12", "1 x 1 kernels on CIFAR-10", f"{_COMPARE} --kernel-sizes 3 1"),
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
