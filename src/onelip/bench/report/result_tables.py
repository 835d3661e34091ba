"""Tables of trained models: accuracies as in the paper, full tables, 1 x 1 kernels, ranking scores, radar scores."""

from __future__ import annotations

from collections.abc import Sequence

from onelip.bench.published import PublishedResult, published_results
from onelip.bench.published.ranking import score_methods
from onelip.bench.report.scores import METRICS, RadarScores
from onelip.bench.report.style import size_order
from onelip.bench.report.summaries import ModelSummary, longest_budget, ranking_entries
from onelip.bench.report.tables import (
    Cell,
    Column,
    Row,
    Table,
    duration,
    method,
    number,
    percent,
    scientific,
    text,
    with_best,
)
from onelip.protocol import RADIUS_NUMERATORS

_CERTIFIED = "certified accuracy at radius 36/255 on the test set, in %"


def result_tables(models: Sequence[ModelSummary], settings: Sequence[ModelSummary]) -> list[Table]:
    """All tables that training runs give rise to."""
    datasets = sorted({model.dataset for model in models})
    tables = [_accuracy_table(dataset, [m for m in models if m.dataset == dataset]) for dataset in datasets]
    tables += [_full_table(dataset, [s for s in settings if s.dataset == dataset]) for dataset in datasets]
    tables += _kernel_tables(models)
    return [table for table in tables if table.rows]


def _accuracy_table(dataset: str, models: list[ModelSummary]) -> Table:
    """Methods as rows and sizes as columns, for each budget, like the paper's main table."""
    # Trials of a search with a budget of its own have no test results: they are in the full table only.
    models = [model for model in models if model.kernel_size == 3 and model.accuracy is not None]
    sizes = sorted({model.size for model in models}, key=size_order)
    found = {(m.budget, m.method, m.size): m for m in models}
    rows: list[Row] = []
    for budget in dict.fromkeys(model.budget for model in models):
        for key in sorted({model.method for model in models if model.budget == budget}):
            line = [found.get((budget, key, size)) for size in sizes]
            accuracy = [percent(model.accuracy if model else None) for model in line]
            certified = [percent(model.certified.get(36) if model else None) for model in line]
            rows.append((text(budget), method(key), *accuracy, *certified))
    columns = [Column("Budget", numeric=False), Column("Method", numeric=False)]
    columns += [Column(size, "Accuracy [%]") for size in sizes]
    columns += [Column(size, "Certified accuracy [%]") for size in sizes]
    return Table(
        name=f"accuracy-{dataset}",
        section="accuracy",
        title=f"Accuracy and certified accuracy on {dataset}",
        caption=f"Accuracy and {_CERTIFIED}, by training budget, method and size. Bold: best of its column and budget."
        + seeds_note(models),
        columns=tuple(columns),
        rows=with_best(rows, range(2, len(columns)), same=lambda row: row[0].text),
    )


def seeds_note(models: Sequence[ModelSummary]) -> str:
    """What a ± means, if there is one."""
    most = max((model.accuracy.count for model in models if model.accuracy), default=1)
    return f" Mean ± standard deviation over up to {most} seeds." if most > 1 else " One seed."


def _full_table(dataset: str, settings: list[ModelSummary]) -> Table:
    """Every setting with its hyper-parameters and all radii, beside the paper's figures where it has the same model."""
    printed = [_published(setting) for setting in settings]
    rows = [_full_row(setting) for setting in settings]
    columns = [Column(name, numeric=False) for name in ("Method", "Size", "Kernel", "Budget")]
    columns += [
        Column(name) for name in ("LR", "Weight decay", "Seeds", "Epochs", "Training", "Validation", "Accuracy")
    ]
    columns += [Column(f"{radius}/255", "Certified accuracy [%] at radius") for radius in RADIUS_NUMERATORS]
    if any(printed):
        columns += [Column(name, "Published [%]") for name in ("acc.", "cert. 36/255")]
        rows = [row + _published_cells(result) for row, result in zip(rows, printed, strict=True)]
    return Table(
        name=f"full-{dataset}",
        section="full",
        title=f"All results on {dataset}",
        caption="Every setting that was trained, with learning rate and weight decay. Accuracies in %, on the test "
        "set; validation is "
        "the certified accuracy at 36/255 by which a setting is chosen. Bold: best of its column and budget."
        + seeds_note(settings),
        columns=tuple(columns),
        rows=with_best(rows, range(10, 11 + len(RADIUS_NUMERATORS)), same=lambda row: row[3].text),
    )


def _full_row(setting: ModelSummary) -> Row:
    first = setting.runs[0]
    epochs = [row.epochs for row in setting.runs if row.epochs is not None]
    seconds = [row.train_seconds for row in setting.runs if row.train_seconds is not None]
    return (
        method(setting.method),
        text(setting.size),
        text(f"{setting.kernel_size} x {setting.kernel_size}"),
        text(setting.budget),
        scientific(first.learning_rate),
        scientific(first.weight_decay),
        number(float(len(setting.runs)), "{:.0f}".format),
        number(sum(epochs) / len(epochs) if epochs else None, "{:.4g}".format),
        duration(sum(seconds) / len(seconds) if seconds else None),
        percent(setting.validation_certified),
        percent(setting.accuracy),
        *(percent(setting.certified.get(radius)) for radius in RADIUS_NUMERATORS),
    )


def _published(model: ModelSummary) -> PublishedResult | None:
    for row in published_results():
        same = (row.dataset, row.key, row.size, row.kernel_size, f"{row.train_hours}h")
        if same == (model.dataset, model.method, model.size, model.kernel_size, model.budget):
            return row
    return None


def _published_cells(result: PublishedResult | None) -> Row:
    if result is None:
        return percent(None), percent(None)
    return percent(result.accuracy / 100), percent(result.certified_accuracy_36 / 100)


def _kernel_tables(models: Sequence[ModelSummary]) -> list[Table]:
    """Models with 1 x 1 kernels beside the same ones with 3 x 3, where they exist."""
    small = [model for model in models if model.kernel_size == 1]
    if not small:
        return []
    large = {(m.dataset, m.method, m.size, m.budget): m for m in models if m.kernel_size == 3}
    rows = []
    for model in small:
        other = large.get((model.dataset, model.method, model.size, model.budget))
        cells = [text(model.dataset), text(model.budget), method(model.method), text(model.size)]
        for part in (model, other):
            cells += [percent(part.accuracy if part else None), percent(part.certified.get(36) if part else None)]
        rows.append((*cells, _difference(model, other)))
    names = [Column(name, numeric=False) for name in ("Data set", "Budget", "Method", "Size")]
    groups = [Column(name, f"{kernel} [%]") for kernel in ("1 x 1", "3 x 3") for name in ("accuracy", "certified")]
    table = Table(
        name="kernel-1x1",
        section="full",
        title="Kernels of 1 x 1",
        caption=f"Accuracy and {_CERTIFIED}, with 1 x 1 kernels and with 3 x 3; the last column is the difference in "
        "certified accuracy. Bold: best of its column, data set and budget.",
        columns=(*names, *groups, Column("1 x 1 - 3 x 3")),
        rows=with_best(rows, range(4, 8), same=lambda row: (row[0].text, row[1].text)),
    )
    return [table]


def _difference(model: ModelSummary, other: ModelSummary | None) -> Cell:
    if other is None or model.certified_36 is None or other.certified_36 is None:
        return number(None)
    return number(100 * (model.certified_36 - other.certified_36), "{:+.1f}".format)


def ranking_table(models: Sequence[ModelSummary]) -> Table:
    """The paper's ranking score by certified accuracy and by accuracy."""
    compared = longest_budget(models)
    certified = score_methods(ranking_entries(compared, lambda model: model.certified_36))
    clean = {s.method: s for s in score_methods(ranking_entries(compared, _accuracy_mean))}
    rows = []
    for score in certified:
        other = clean.get(score.method)
        counts = (score.score, score.first, score.top3, score.top10, other.score if other else None)
        rows.append((method(score.method), *(number(count, "{:.0f}".format) for count in counts)))
    columns = [Column("Method", numeric=False)]
    columns += [Column(name, "By certified accuracy") for name in ("score", "first", "top 3", "top 10")]
    return Table(
        name="ranking",
        section="overview",
        title="Ranking score",
        caption="As in the paper: over all data sets, the models of a method that are first, in the top 3 and in the "
        "top "
        "10 are added up, so a first place counts three times and a place in the top 3 twice. Longest budget of each "
        f"data set, 3 x 3 kernels, {len(compared)} models.",
        columns=(*columns, Column("score", "By accuracy")),
        rows=with_best(rows, (1, 5)),
    )


def _accuracy_mean(model: ModelSummary) -> float | None:
    return None if model.accuracy is None else model.accuracy.mean


def radar_table(scores: RadarScores) -> Table:
    """The scores that the radar plot shows, for all methods that have any."""
    methods = sorted({name for table in scores.scores.values() for name in table})
    metrics = [metric for metric in METRICS if metric in scores.scores]
    rows = [
        (method(key), *(number(scores.scores[metric].get(key), "{:.1f}".format) for metric in metrics))
        for key in methods
    ]
    return Table(
        name="scores",
        section="overview",
        title="Scores of the radar plot",
        caption="From 1 (worst) to 5 (best), by the rule beside the plot. Bold: best of its column.",
        columns=(Column("Method", numeric=False), *(Column(metric) for metric in metrics)),
        rows=with_best(rows, range(1, len(metrics) + 1)),
    )
