"""Tables of trained models: accuracies as in the paper, all settings, 1 x 1 kernels, ranking, reproduction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onelip.bench.published import PublishedResult, published_results
from onelip.bench.published.ranking import RankingEntry, score_methods
from onelip.bench.report.intervals import Share, differ, mean_share
from onelip.bench.report.method_style import size_order
from onelip.bench.report.report_table import (
    METHOD,
    Column,
    ReportTable,
    duration,
    percent,
    scientific,
    three_digits,
    words,
)
from onelip.bench.report.trained_models import TEST_IMAGES, TrainedModel, by_dataset, longest_budget, mean
from onelip.bench.runs.specs import NetworkSpec
from onelip.protocol import RADIUS_NUMERATORS

PM = "± is the standard error, from the number of test images and, where there are several, of seeds"
_CERTIFIED = "certified accuracy at radius 36/255 (Euclidean norm) on the test set, in %"
_BOLD = "Bold: the best, and what cannot be told from it"


def result_tables(models: Sequence[TrainedModel], settings: Sequence[TrainedModel]) -> list[ReportTable]:
    """All tables that training runs give rise to."""
    # Trials of a search with a budget of its own have no test results: they are in the full table only.
    tested = [model for model in models if model.accuracy is not None and model.is_usual]
    large = by_dataset(model for model in tested if model.network.kernel_size == 3)
    return [
        ranking_table(longest_budget(models)),
        *(_accuracy_table(dataset, own) for dataset, own in large.items()),
        _reproduction_table(tested),
        *(_full_table(dataset, own) for dataset, own in by_dataset(settings).items()),
        _kernel_table(tested),
    ]


def _accuracy_table(dataset: str, models: list[TrainedModel]) -> ReportTable:
    """Methods as rows and sizes as columns, for each budget, like the paper's main table."""
    sizes = sorted({model.network.size_name for model in models}, key=size_order)
    found = {(model.budget.name, model.network.method, model.network.size_name): model for model in models}
    rows = []
    for budget, method in sorted({(m.budget.name, m.network.method) for m in models}, key=lambda pair: pair[1]):
        line = [found.get((budget, method, size)) for size in sizes]
        cells = [(model and model.certified_36, model and model.accuracy) for model in line]
        rows.append((method, budget, *(cell for pair in cells for cell in pair)))
    budgets = list(dict.fromkeys(model.budget.name for model in models))
    columns = [Column(title, size, best="highest") for size in sizes for title in ("certified", "accuracy")]
    return ReportTable(
        name=f"accuracy-{dataset}",
        section="accuracy",
        title=f"Certified accuracy and accuracy on {dataset}",
        caption=f"Accuracy and {_CERTIFIED}, by method, training budget and size. {_BOLD} at the same budget "
        f"and size. {PM}.",
        columns=(METHOD, words("Budget"), *columns),
        rows=sorted(rows, key=lambda row: budgets.index(row[1])),
        best_within=("Budget",),
    )


def _full_table(dataset: str, settings: list[TrainedModel]) -> ReportTable:
    """Every setting with its hyper-parameters and all radii."""
    rows = [
        (
            setting.network.method,
            setting.network.size_name,
            setting.accuracy,
            *(setting.certified.get(radius) for radius in RADIUS_NUMERATORS),
            setting.budget.name,
            f"{setting.network.kernel_size} x {setting.network.kernel_size}",
            setting.runs[0].learning_rate,
            setting.runs[0].weight_decay,
            len(setting.runs),
            mean(run.epochs for run in setting.runs),
            mean(run.train_seconds for run in setting.runs),
            setting.validation_certified,
            "" if setting.is_usual else setting.network.label,
        )
        for setting in settings
    ]
    columns = [Column("Accuracy [%]", best="highest")]
    radii = [f"{numerator}/255" for numerator in RADIUS_NUMERATORS]
    columns += [Column(radius, "Certified accuracy [%] at radius", best="highest") for radius in radii]
    columns += [words("Budget"), words("Kernel")]
    columns += [Column("LR", show=scientific), Column("Weight decay", show=scientific), Column("Seeds")]
    columns += [Column("Epochs", show=three_digits), Column("Training", show=duration)]
    return ReportTable(
        name=f"full-{dataset}",
        section="full",
        title=f"All results on {dataset}",
        caption="Every setting that was trained. Certified accuracy is for perturbations of the given Euclidean norm. "
        "Validation is the certified accuracy at 36/255 on the validation split, in %, by which a setting is chosen. "
        f"{_BOLD} at the same budget. {PM}.",
        columns=(METHOD, words("Size"), *columns, Column("Validation", show=percent), words("Variant")),
        rows=rows,
        best_within=("Budget",),
    )


def published_result(model: TrainedModel) -> PublishedResult | None:
    """What the paper printed for the same data set, network and budget, if its training did not break down."""
    network, hours = model.network, model.budget.hours if model.budget.epochs is None else None
    for row in published_results():
        same = NetworkSpec(method=row.key, size=row.size, dataset=row.dataset, kernel_size=row.kernel_size)
        if same == network and hours == row.train_hours and not row.failed:
            return row
    return None


def published_share(row: PublishedResult, value: float) -> Share:
    """A printed percentage with the error that its test images give it; the paper has one seed."""
    share = mean_share([value / 100], TEST_IMAGES[row.dataset])
    assert share is not None
    return share


def _reproduction_table(models: Sequence[TrainedModel]) -> ReportTable:
    """Ours against the paper's, for the same data set, network and budget."""
    rows = []
    for model in models:
        printed = published_result(model)
        if printed is None or model.certified_36 is None or model.accuracy is None:
            continue
        network = model.network
        cells: list[object] = [network.method, network.size_name, network.dataset, model.budget.name]
        cells.append(f"{network.kernel_size} x {network.kernel_size}")
        for ours, value in (
            (model.certified_36, printed.certified_accuracy_36),
            (model.accuracy, printed.accuracy),
        ):
            theirs = published_share(printed, value)
            verdict = ("above" if ours.mean > theirs.mean else "below") if differ(ours, theirs) else "agree"
            cells += [ours, theirs, difference(ours, theirs), verdict]
        rows.append(tuple(cells))
    columns: list[Column] = []
    for group in ("Certified accuracy [%]", "Accuracy [%]"):
        columns += [Column("ours", group), Column("paper", group), Column("ours - paper", group, show=signed)]
        columns.append(Column("verdict", group, numeric=False))
    names = [words(title) for title in ("Size", "Data set", "Budget", "Kernel")]
    return ReportTable(
        name="reproduction",
        section="reproduction",
        title="Our results and the paper's",
        caption="The same data set, network and training time; the paper trained on an A100 with its own code, "
        f"one seed. Certified accuracy at radius 36/255 (Euclidean norm). Verdict: whether the difference is "
        f"within 1.96 of its standard errors. {PM}.",
        columns=(METHOD, *names, *columns),
        rows=rows,
    )


def difference(a: Share, b: Share) -> Share | None:
    """a - b with its standard error."""
    errors = (a.error, b.error)
    error = None if None in errors else math.hypot(*(e for e in errors if e is not None))
    return Share(a.mean - b.mean, error, min(a.seeds, b.seeds))


def signed(value: Share) -> str:
    """A difference with its sign."""
    return f"{'+' if value.mean >= 0 else ''}{value}".replace("-", "\u2212")


def _kernel_table(models: Sequence[TrainedModel]) -> ReportTable:
    """Models with 1 x 1 kernels beside the same ones with 3 x 3, where they exist."""
    large = {
        (m.network.dataset, m.network.method, m.network.size_name, m.budget.name): m
        for m in models
        if m.network.kernel_size == 3
    }
    rows = []
    for model in (model for model in models if model.network.kernel_size == 1):
        network = model.network
        other = large.get((network.dataset, network.method, network.size_name, model.budget.name))
        ours, theirs = model.certified_36, other and other.certified_36
        cells = (ours, model.accuracy, theirs, other and other.accuracy)
        gap = difference(ours, theirs) if ours and theirs else None
        rows.append((network.method, network.size_name, network.dataset, model.budget.name, *cells, gap))
    columns = [
        Column(name, f"{kernel} [%]", best="highest")
        for kernel in ("1 x 1", "3 x 3")
        for name in ("certified", "accuracy")
    ]
    return ReportTable(
        name="kernel-1x1",
        section="full",
        title="Kernels of 1 x 1",
        caption=f"Accuracy and {_CERTIFIED}, with 1 x 1 kernels and with 3 x 3; the last column is the difference in "
        f"certified accuracy. {_BOLD} on the same data set and budget. {PM}.",
        columns=(
            METHOD,
            *(words(title) for title in ("Size", "Data set", "Budget")),
            *columns,
            Column("1 x 1 - 3 x 3", show=signed),
        ),
        rows=rows,
        best_within=("Data set", "Budget"),
    )


def ranking_table(compared: Sequence[TrainedModel]) -> ReportTable:
    """The paper's ranking score by certified accuracy and by accuracy."""

    def scores(values: Sequence[tuple[TrainedModel, Share | None]]) -> list[tuple[str, int, int, int, int]]:
        entries = [
            RankingEntry(model.network.dataset, model.network.method, model.network.size_name, s.mean)
            for model, s in values
            if s is not None and model.has_guarantee
        ]
        return [(score.method, score.score, score.first, score.top3, score.top10) for score in score_methods(entries)]

    clean = {row[0]: row[1] for row in scores([(model, model.accuracy) for model in compared])}
    rows = [(*row, clean.get(row[0])) for row in scores([(model, model.certified_36) for model in compared])]
    columns = [Column("points", "By certified accuracy", best="highest")]
    columns += [Column(title, "By certified accuracy") for title in ("first", "top 3", "top 10")]
    return ReportTable(
        name="ranking",
        section="overview",
        title="Ranking points",
        caption="As in the paper: a model gets three points for a first place on its data set, two for a place in the "
        "top 3, one for a place in the top 10, and a method the points of all its models. Longest budget of each data "
        f"set, 3 x 3 kernels, {len(compared)} models. Points go by order alone, even where differences "
        "may be chance.",
        columns=(METHOD, *columns, Column("points", "By accuracy", best="highest")),
        rows=rows,
    )
