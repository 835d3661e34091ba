"""Every table and figure of the comparison paper: the published one, and ours from the records of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from onelip.bench.report.cost_tables import LayerTheory, layer_theory_table
from onelip.bench.report.figures.bars import accuracy_bars
from onelip.bench.report.figures.cost_lines import cost_figures, published_cost_figures
from onelip.bench.report.figures.curves import budget_figures
from onelip.bench.report.figures.drawing import ReportFigure
from onelip.bench.report.figures.layer_lines import draw_layers
from onelip.bench.report.figures.radar import one_radar
from onelip.bench.report.paper_architecture import architecture_tables
from onelip.bench.report.paper_tables import (
    budget_table,
    own_epoch_table,
    own_gradient_table,
    own_literature_table,
    published_epoch_table,
    published_gradient_table,
    published_literature_table,
    size_table,
)
from onelip.bench.report.published_study import published_models
from onelip.bench.report.radar_scale import published_radar, study_radar
from onelip.bench.report.report_table import ReportTable
from onelip.bench.report.result_tables import ranking_table
from onelip.bench.report.study_rows import DiagnosedNetwork, StudyResults
from onelip.bench.report.trained_models import TrainedModel, all_settings, chosen_models, longest_budget
from onelip.bench.runs.specs import NetworkSpec

Part = ReportFigure | ReportTable

_COMPARE = "onelip compare --preset paper"


@dataclass(frozen=True)
class PaperSources:
    """What the items are made of; `published_memory` are bytes by the published formulas."""

    study: StudyResults
    theory: LayerTheory
    published_memory: Mapping[NetworkSpec, float]

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
    note: str = ""


def _radar(given: PaperSources) -> Sides:
    ours = study_radar(given.study, given.models)
    return one_radar("radar-published", "The paper's values", published_radar()), one_radar("radar", "Ours", ours)


def _theory(given: PaperSources) -> Sides:
    lines = {source: tuple(line for line in given.theory.lines if line.source == source) for source in _THEORY_TITLES}
    printed, ours = (
        replace(layer_theory_table(replace(given.theory, lines=lines[source])), name=f"theory-{source}", title=title)
        for source, title in _THEORY_TITLES.items()
    )
    return [printed], [ours]


_THEORY_TITLES = {"published": "Costs of the published algorithms", "onelip": "Costs where onelip computes otherwise"}


def _costs(given: PaperSources) -> Sides:
    return published_cost_figures(given.published_memory), cost_figures(given.study)


def _bars(given: PaperSources) -> Sides:
    return accuracy_bars(published_models(), marks=False), accuracy_bars(given.models)


def _named(build: Build, *names: str) -> Build:
    """Of what `build` draws, the figures whose names begin so."""

    def chosen(given: PaperSources) -> Sides:
        printed, ours = build(given)
        return [f for f in printed if f.name.startswith(names)], [f for f in ours if f.name.startswith(names)]

    return chosen


def _sizes(given: PaperSources) -> Sides:
    printed = size_table("results-published", "Published results", published_models())
    return [printed], [size_table("results-ours", "Our results", given.models)]


def _eco(given: PaperSources) -> Sides:
    """The published ECO and ours, drawn alike: both from records."""
    parts: dict[str, list[Part]] = {"published": [], "own": []}
    for row in given.diagnosed("eco"):
        words = "as published" if row.setting == "published" else "in onelip"
        largest = max(layer.norm_estimate or 0.0 for layer in row.layers)
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


def _sandwich(given: PaperSources) -> Sides:
    networks = given.diagnosed("sandwich")
    return [published_gradient_table()], [own_gradient_table(networks)] if networks else []


def _literature(given: PaperSources) -> Sides:
    return [published_literature_table()], [own_literature_table(given.models)]


def _architecture(given: PaperSources) -> Sides:
    return architecture_tables()


def _epochs(given: PaperSources) -> Sides:
    return [published_epoch_table()], [own_epoch_table(given.study)]


def _lines(given: PaperSources) -> Sides:
    return budget_figures([m for m in published_models() if m.network.kernel_size == 3]), budget_figures(given.models)


def _budgets(dataset: str, kernel_size: int = 3) -> Build:
    def chosen(models: Sequence[TrainedModel]) -> list[TrainedModel]:
        return [m for m in models if (m.network.dataset, m.network.kernel_size) == (dataset, kernel_size)]

    def build(given: PaperSources) -> Sides:
        name = f"{dataset}-{kernel_size}x{kernel_size}"
        printed = budget_table(f"{name}-published", f"Published, {dataset}", chosen(published_models(failed=True)))
        return [printed], [budget_table(f"{name}-ours", f"Ours, {dataset}", chosen(given.models))]

    return build


def _ranking(given: PaperSources) -> Sides:
    tables = (ranking_table(longest_budget(models)) for models in (published_models(), given.models))
    names = ("ranking-published", "ranking-ours")
    printed, ours = (replace(table, name=name) for table, name in zip(tables, names, strict=True))
    return [printed], [ours]


_LOGS = "the paper draws it and prints no numbers; the published side is "
ITEMS = (
    PaperItem("radar", "Figure 1", "Radar plot", _COMPARE, _radar, _LOGS + "its tables on the scale of ours"),
    PaperItem("complexity", "Table 1", "Complexity and memory", "onelip theory --counted", _theory),
    PaperItem(
        "training-time",
        "Figure 2",
        "Training time per epoch",
        "onelip measure time --sizes XS S M L",
        _named(_costs, "training-time-cifar"),
        _LOGS + "its table of epochs in two hours",
    ),
    PaperItem(
        "throughput",
        "Figure 3",
        "Inference throughput",
        "onelip measure time --sizes XS S M L",
        _named(_costs, "inference-throughput-cifar"),
        _LOGS + "images per second in its logs, for XS, S and M",
    ),
    PaperItem(
        "memory",
        "Figure 4",
        "Memory",
        "onelip measure memory --sizes XS S M L",
        _named(_costs, "training-memory-cifar", "inference-memory-cifar"),
        _LOGS + "its formulas for training; for inference there are none",
    ),
    PaperItem(
        "certified", "Figure 5", "Certified accuracy in decreasing order", _COMPARE, _named(_bars, "bars-certified")
    ),
    PaperItem("results", "Table 2", "Results after 24 hours", _COMPARE, _sizes),
    PaperItem("ranking", "Section 5.3", "Ranking of the methods", _COMPARE, _ranking),
    PaperItem(
        "eco",
        "Figure 6",
        "Variance and norm of ECO",
        "onelip reproduce --defects",
        _eco,
        _LOGS + "the published layer, run here",
    ),
    PaperItem("sandwich", "Table 3", "Vanishing gradients of Sandwich", "onelip reproduce --defects", _sandwich),
    PaperItem("literature", "Table 4", "State of the art on CIFAR-10", _COMPARE, _literature),
    PaperItem("architecture", "Tables 5 to 7", "Architecture, block and sizes", "none: from the code", _architecture),
    PaperItem("epochs", "Table 8", "Epochs in two hours", "onelip measure time --sizes XS S M L", _epochs),
    PaperItem("budgets", "Figure 7", "Certified accuracy by training budget", _COMPARE, _lines),
    PaperItem(
        "tiny-imagenet-costs",
        "Figure 8",
        "Time and memory on Tiny ImageNet",
        "onelip measure time --sizes XS S M L --datasets tiny-imagenet; onelip measure memory --datasets tiny-imagenet",
        _named(
            _costs,
            *(f"{q}-tiny" for q in ("training-time", "inference-throughput", "training-memory", "inference-memory")),
        ),
        _LOGS + "epochs in two hours and formulas; throughput is nowhere",
    ),
    PaperItem("accuracy", "Figure 9", "Clean accuracy in decreasing order", _COMPARE, _named(_bars, "bars-clean")),
    PaperItem("cifar10", "Table 9", "All budgets on CIFAR-10", _COMPARE, _budgets("cifar10")),
    PaperItem("cifar100", "Table 10", "All budgets on CIFAR-100", _COMPARE, _budgets("cifar100")),
    PaperItem("tiny-imagenet", "Table 11", "All budgets on Tiny ImageNet", _COMPARE, _budgets("tiny-imagenet")),
    PaperItem(
        "kernel-1x1", "Table 12", "1 x 1 kernels on CIFAR-10", f"{_COMPARE} --kernel-sizes 3 1", _budgets("cifar10", 1)
    ),
)
"""In the order of the paper; floats are numbered by their place in its source."""
