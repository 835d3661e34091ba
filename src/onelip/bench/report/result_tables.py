"""Tables of trained models: accuracies as in the paper, all settings, 1 x 1 kernels, ranking."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onelip.bench.paper.published import RankingEntry, score_methods
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.report.method_style import size_order
from onelip.bench.report.report_table import (
    DATASET,
    METHOD,
    SIZE,
    Column,
    ReportTable,
    duration,
    percent,
    scientific,
    three_digits,
    words,
)
from onelip.bench.report.shares import Share, differ
from onelip.bench.report.study_rows import Budget
from onelip.bench.report.trained_models import TrainedModel, by_dataset, longest_budget, mean, published_result
from onelip.protocol import RADIUS_NUMERATORS

PM = "± is the standard error, from the number of test images and, where there are several, of seeds"
_CERTIFIED = "certified accuracy at radius 36/255 (Euclidean norm) on the test set, in %"
_BOLD = "Bold: the best, and what cannot be told from it"

BUDGET = words("Budget", "budget.name")
_KERNEL = words("Kernel", lambda item: f"{item.network.kernel_size} x {item.network.kernel_size}")


def result_tables(models: Sequence[TrainedModel], settings: Sequence[TrainedModel]) -> list[ReportTable]:
    """All tables that training runs give rise to."""
    # Trials of a search with a budget of its own have no test results: they are in the full table only.
    tested = [model for model in models if model.accuracy is not None and model.is_usual]
    large = by_dataset(model for model in tested if model.network.kernel_size == 3)
    return [
        ranking_table(longest_budget(models)),
        *(accuracy_table(dataset, own) for dataset, own in large.items()),
        _reproduction_table(tested),
        *(_full_table(dataset, own) for dataset, own in by_dataset(settings).items()),
        _kernel_table(tested),
    ]


@dataclass(frozen=True)
class Line:
    """A row with several models, such as all sizes of a method, by what tells them apart."""

    models: dict[Any, TrainedModel]

    @property
    def first(self) -> TrainedModel:
        """What the models share is read from it."""
        return next(iter(self.models.values()))

    @property
    def network(self) -> NetworkSpec:
        """That of the first model."""
        return self.first.network

    @property
    def budget(self) -> Budget:
        """That of the first model."""
        return self.first.budget


def lines_of(
    models: Iterable[TrainedModel],
    row: Callable[[TrainedModel], Hashable],
    place: Callable[[TrainedModel], Hashable] = lambda model: model.network.size_name,
) -> list[Line]:
    """Models with the same row in one line, by their place in it."""
    lines: dict[Hashable, dict[Any, TrainedModel]] = {}
    for model in models:
        lines.setdefault(row(model), {})[place(model)] = model
    return [Line(found) for found in lines.values()]


def cell(place: Hashable, field: str) -> Callable[[Line], Any]:
    """For a column: a field of the model at this place of a line, None where there is no model."""
    return lambda line: getattr(line.models.get(place), field, None)


def accuracy_table(dataset: str, models: list[TrainedModel], name: str = "") -> ReportTable:
    """Methods as rows and sizes as columns, for each budget, like the paper's main table."""
    budgets = list(dict.fromkeys(model.budget.name for model in models))
    ordered = sorted(models, key=lambda model: (budgets.index(model.budget.name), model.network.method))
    columns = [
        Column(title, size, best="highest", of=cell(size, field))
        for size in sorted({model.network.size_name for model in models}, key=size_order)
        for title, field in (("certified", "certified_36"), ("accuracy", "accuracy"))
    ]
    return ReportTable.of_items(
        lines_of(ordered, lambda model: (model.budget.name, model.network.method)),
        name=name or f"accuracy-{dataset}",
        section="accuracy",
        title=f"Certified accuracy and accuracy on {dataset}",
        caption=f"Accuracy and {_CERTIFIED}, by method, training budget and size. {_BOLD} at the same budget "
        f"and size. {PM}.",
        columns=(METHOD, BUDGET, *columns),
        best_within=("Budget",),
    )


def certified_columns(group: str, **look: Any) -> list[Column]:
    """Certified accuracy at each of the paper's radii."""
    return [Column(f"{r}/255", group, of=lambda m, r=r: m.certified.get(r), **look) for r in RADIUS_NUMERATORS]


def _full_table(dataset: str, settings: list[TrainedModel]) -> ReportTable:
    """Every setting with its hyper-parameters and all radii."""
    return ReportTable.of_items(
        settings,
        name=f"full-{dataset}",
        section="full",
        title=f"All results on {dataset}",
        caption="Every setting that was trained. Certified accuracy is for perturbations of the given Euclidean norm. "
        "Validation is the certified accuracy at 36/255 on the validation split, in %, by which a setting is chosen. "
        f"{_BOLD} at the same budget. {PM}.",
        columns=(
            METHOD,
            SIZE,
            Column("Accuracy [%]", best="highest", of="accuracy"),
            *certified_columns("Certified accuracy [%] at radius", best="highest"),
            BUDGET,
            _KERNEL,
            Column("LR", show=scientific, of="spec.lr"),
            Column("Weight decay", show=scientific, of="spec.weight_decay"),
            Column("Seeds", of=lambda m: len(m.runs)),
            Column("Epochs", show=three_digits, of=lambda m: mean(run.result.epochs for run in m.runs)),
            Column("Training", show=duration, of=lambda m: mean(run.result.train_seconds for run in m.runs)),
            Column("Validation", show=percent, of="validation_certified"),
            words("Variant", lambda m: "" if m.is_usual else m.network.label),
        ),
        best_within=("Budget",),
    )


def _reproduction_table(models: Sequence[TrainedModel]) -> ReportTable:
    """Ours against the paper's, for the same data set, network and budget."""
    pairs = [
        Line({"ours": model, "paper": printed})
        for model in models
        if (printed := published_result(model)) and model.certified_36 and model.accuracy
    ]
    columns: list[Column] = []
    for group, field in (("Certified accuracy [%]", "certified_36"), ("Accuracy [%]", "accuracy")):
        ours, theirs = cell("ours", field), cell("paper", field)
        columns += [
            Column("ours", group, of=ours),
            Column("paper", group, of=theirs),
            Column("ours - paper", group, signed, of=lambda pair, a=ours, b=theirs: a(pair) - b(pair)),
            Column("verdict", group, numeric=False, of=lambda pair, a=ours, b=theirs: _verdict(a(pair), b(pair))),
        ]
    return ReportTable.of_items(
        pairs,
        name="reproduction",
        section="reproduction",
        title="Our results and the paper's",
        caption="The same data set, network and training time; the paper trained on an A100 with its own code, "
        f"one seed. Certified accuracy at radius 36/255 (Euclidean norm). Verdict: whether the difference is "
        f"within 1.96 of its standard errors. {PM}.",
        columns=(METHOD, SIZE, DATASET, BUDGET, _KERNEL, *columns),
    )


def _verdict(ours: Share, theirs: Share) -> str:
    if not differ(ours, theirs):
        return "agree"
    return "above" if ours.mean > theirs.mean else "below"


def signed(value: Share) -> str:
    """A difference with its sign."""
    return f"{'+' if value.mean >= 0 else ''}{value}".replace("-", "\u2212")


def _kernel_table(models: Sequence[TrainedModel]) -> ReportTable:
    """Models with 1 x 1 kernels beside the same ones with 3 x 3, where they exist."""
    lines = lines_of(
        sorted(models, key=lambda model: model.network.kernel_size),
        lambda m: (m.network.dataset, m.network.method, m.network.size_name, m.budget.name),
        lambda m: m.network.kernel_size,
    )
    columns = [
        Column(name, f"{kernel} x {kernel} [%]", best="highest", of=cell(kernel, field))
        for kernel in (1, 3)
        for name, field in (("certified", "certified_36"), ("accuracy", "accuracy"))
    ]
    one, three = cell(1, "certified_36"), cell(3, "certified_36")
    gap = Column(
        "1 x 1 - 3 x 3", show=signed, of=lambda line: one(line) - three(line) if one(line) and three(line) else None
    )
    return ReportTable.of_items(
        [line for line in lines if 1 in line.models],
        name="kernel-1x1",
        section="full",
        title="Kernels of 1 x 1",
        caption=f"Accuracy and {_CERTIFIED}, with 1 x 1 kernels and with 3 x 3; the last column is the difference in "
        f"certified accuracy. {_BOLD} on the same data set and budget. {PM}.",
        columns=(METHOD, SIZE, DATASET, BUDGET, *columns, gap),
        best_within=("Data set", "Budget"),
    )


def ranking_table(compared: Sequence[TrainedModel], name: str = "ranking") -> ReportTable:
    """The paper's ranking score by certified accuracy and by accuracy."""
    guaranteed = [model for model in compared if model.has_guarantee]
    certified, clean = (
        score_methods(
            RankingEntry(m.network.dataset, m.network.method, m.network.size_name, share.mean)
            for m in guaranteed
            if (share := getattr(m, field)) is not None
        )
        for field in ("certified_36", "accuracy")
    )
    clean_points = {score.method: score.score for score in clean}
    group = "By certified accuracy"
    return ReportTable.of_items(
        certified,
        name=name,
        section="overview",
        title="Ranking points",
        caption="As in the paper: a model gets three points for a first place on its data set, two for a place in the "
        "top 3, one for a place in the top 10, and a method the points of all its models. Longest budget of each data "
        f"set, 3 x 3 kernels, {len(compared)} models. Points go by order alone, even where differences "
        "may be chance.",
        columns=(
            replace(METHOD, of="method"),
            Column("points", group, best="highest", of="score"),
            Column("first", group, of="first"),
            Column("top 3", group, of="top3"),
            Column("top 10", group, of="top10"),
            Column("points", "By accuracy", best="highest", of=lambda score: clean_points.get(score.method)),
        ),
    )
