"""What the results say in a few sentences, for the top of the page. Only what the data tell apart is called better.

Notes on how the study was made stand below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onelip.bench.records import RunStatus
from onelip.bench.report.method_style import method_style
from onelip.bench.report.report_table import ReportTable, listed
from onelip.bench.report.run_tables import seconds_of
from onelip.bench.report.shares import differ
from onelip.bench.report.study_rows import WITHOUT_GUARANTEE, MeasuredTime, StudyResults, TrainedRun
from onelip.bench.report.trained_models import (
    TrainedModel,
    by_dataset,
    longest_budget,
    main_memory,
    main_times,
    network_label,
    relative_to_plain,
)
from onelip.protocol import WIDTHS

BASELINE = (
    "“Plain” is the baseline of the whole report: the same network with ordinary convolutions. It has no bounded "
    "Lipschitz constant, so it certifies nothing; times, memory and operations are given relative to it."
)

TRAINED_ONCE = "Every network was trained once: ± counts the draw of the test images, and not that of the seed."


def baseline(models: Sequence[TrainedModel]) -> str:
    """What the names in the report mean: plain, and sizes that are not the paper's."""
    widths = {model.network.size_name for model in models if model.network.width is not None}
    return (
        f"{BASELINE} {min(widths)} is a network of that width; the paper's XS has {WIDTHS['XS']}."
        if widths
        else BASELINE
    )


GUIDELINES = (
    "Overall: CPL, for its high certified accuracy at low cost.",
    "With large computing resources and no tight limit on time: SOC, for slightly higher certified accuracy.",
    "Where inference time is crucial: AOL or BCOP, which then cost as much as an ordinary convolution.",
)
"""What the paper advises in its conclusions."""

_MOST_FINDINGS = 4


def findings(study: StudyResults, models: Sequence[TrainedModel]) -> list[str]:
    """At most four: the best certified accuracy of each data set, the cheapest in time and memory, other networks."""
    compared = _compared(models)
    comparable = trainings_are_comparable(study)
    best = [_best(dataset, own) for dataset, own in by_dataset(compared).items()] if comparable else []
    fastest = [] if times_note(study) else _fastest(main_times(study))
    others = _other_networks(models, compared) if comparable else []
    return [*best, *fastest, *_memory_range(study), *others][:_MOST_FINDINGS]


def warnings(study: StudyResults) -> list[str]:
    """What hinders a comparison, for the head of the page."""
    return [note for note in (study.mixed_devices, trainings_note(study), times_note(study)) if note]


def notes(study: StudyResults, models: Sequence[TrainedModel]) -> list[str]:
    """How the study was made, as far as a reader must know it."""
    seeds = [model.certified_36.seeds for model in _compared(models) if model.certified_36]
    once = [TRAINED_ONCE] if seeds and set(seeds) == {1} else []
    return [*once, *study.notes]


def _compared(models: Sequence[TrainedModel]) -> list[TrainedModel]:
    return [model for model in longest_budget(models) if model.has_guarantee and model.certified_36]


def _best(dataset: str, models: list[TrainedModel]) -> str:
    ranked = sorted(((m.certified_36, m) for m in models if m.certified_36), key=lambda pair: -pair[0].mean)
    (top, best), rest = ranked[0], ranked[1:]
    where = f"On {dataset} with a training budget of {best.budget.words}"
    if not rest:
        return f"{where}, {best.label} certifies {top} % of the test images at radius 36/255."
    equal = [(share, model) for share, model in rest if not differ(share, top)]
    if not equal:
        share, second = rest[0]
        return (
            f"{where}, {best.label} certifies most: {top} % of the test images at radius 36/255, ahead of "
            f"{second.label} with {share} %."
        )
    named = [(top, best), *equal][:4]
    names = listed([model.label for _, model in named], len(equal) + 1 - len(named))
    shares = listed([str(share) for share, _ in named])
    return f"{where}, {names} are not distinguishable at the top: {shares} % certified at radius 36/255."


def _other_networks(models: Sequence[TrainedModel], compared: Sequence[TrainedModel]) -> list[str]:
    """The best network that is not the paper's, on each data set, with a budget at which those are compared."""
    budgets = {(model.network.dataset, model.budget.name) for model in compared}
    others = [m for m in models if not m.is_usual and (m.network.dataset, m.budget.name) in budgets]
    sentences = []
    for dataset, own in by_dataset(others).items():
        shares = [(m.certified_36, m) for m in own if m.certified_36 and m.has_guarantee and not m.network.is_factory]
        if shares:
            share, best = max(shares, key=lambda pair: pair[0].mean)
            sentences.append(
                f"Other networks than the paper's: with the same budget, {best.network.model} {best.network.size_name} "
                f"certifies {share} % of the test images of {dataset}."
            )
    return sentences


def _fastest(rows: list[MeasuredTime]) -> list[str]:
    """One sentence on training and inference."""
    parts = []
    for phase in ("training", "inference") if rows else ():
        ratios = [(getattr(row, phase).ratio, network_label(row.network)) for row in rows]
        best, name = min(ratios, key=lambda pair: pair[0].median)
        equal = [label for ratio, label in ratios if not differ(ratio, best) and label != name]
        others = f" (not distinguishable from {listed(equal[:3], len(equal) - 3)})" if equal else ""
        if not all(ratio.is_bounded for ratio, _ in ratios):
            others = ", as far as can be told: some were timed in too few rounds for an interval"
        parts.append(f"{name} has the lowest {phase} time, {best} times as long{others}")
    return [f"Relative to the plain network of the same size, {'; '.join(parts)}."] if parts else []


def _memory_range(study: StudyResults) -> list[str]:
    known = relative_to_plain(main_memory(study), "training")
    ratios = {network: value for network, value in known.items() if network.method not in WITHOUT_GUARANTEE}
    if not ratios:
        return []
    low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return [
        f"Training needs between {ratios[low]:.2f} times ({network_label(low)}) and {ratios[high]:.2f} times "
        f"({network_label(high)}) the memory of the plain network."
    ]


def head_figures(study: StudyResults) -> list[tuple[str, str]]:
    """Figures of the page's head: (name, value)."""
    finished = sum(run.status is RunStatus.FINISHED for run in study.runs)
    rows = (*study.trained, *study.times, *study.memory, *study.operations, *study.diagnosed)
    methods = {row.network.method for row in rows} - {*WITHOUT_GUARANTEE}
    datasets = sorted({row.network.dataset for row in rows})
    # A search takes the time of its trials, which are runs themselves.
    hours = sum(seconds_of(run) for run in study.runs if run.record.kind != "search") / 3600
    return [
        ("finished runs", f"{finished} of {len(study.runs)}"),
        ("methods", ", ".join(method_style(method).label for method in sorted(methods)) or "none"),
        ("data sets", ", ".join(datasets) or "none"),
        ("computing time", f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"),
    ]


LEAST_SHARE = 0.9
"""Of the processor. With less of it a training has fewer steps within its time, and a time says little."""

_TRAINED, _TIMED = ("accuracy", "full", "overview"), "time"


def trainings_note(study: StudyResults) -> str:
    """Which trainings had less of the processor, and what it means; empty if none had."""
    words = _disturbance(study.trained, "trainings")
    if not words:
        return ""
    if trainings_are_comparable(study):
        return f"{words} Budgets are not of the wall clock: it took nothing from them."
    return f"Methods are not ranked by accuracy. {words} Within a budget of the wall clock they made fewer steps."


def times_note(study: StudyResults) -> str:
    """The same for measured times."""
    words = _disturbance(study.times, "timings")
    return f"Times are not ranked. {words}" if words else ""


def trainings_are_comparable(study: StudyResults) -> bool:
    """Whether nothing but chance and the methods made their accuracies."""
    return all(
        run.budget.is_processor_time or run.budget.epochs is not None for run in study.trained if _disturbed(run)
    )


def _disturbed(row: TrainedRun | MeasuredTime) -> bool:
    return row.processor_share is not None and row.processor_share < LEAST_SHARE


def _disturbance(rows: Sequence[TrainedRun | MeasuredTime], name: str) -> str:
    shares = [row.processor_share or 0.0 for row in rows if _disturbed(row)]
    if not shares:
        return ""
    beside = f"{len(shares)} of {len(rows)} {name}"
    return (
        f"Other programs computed beside {beside}, which had as little as {100 * min(shares):.0f} % of the processor."
    )


def with_notes(tables: Sequence[ReportTable], study: StudyResults) -> list[ReportTable]:
    """The tables with these notes in the captions of the figures concerned, and without what would rank them."""
    return [noted for table in tables if (noted := _with_note(table, study))]


def _with_note(table: ReportTable, study: StudyResults) -> ReportTable | None:
    about_training = table.section in _TRAINED
    note = trainings_note(study) if about_training else times_note(study) if table.name == _TIMED else ""
    if not note:
        return table
    caption = f"{table.caption} {note}"
    if about_training and trainings_are_comparable(study):
        return replace(table, caption=caption)
    unranked = [replace(column, best="") for column in table.columns]
    return None if table.name == "ranking" else replace(table, caption=caption, columns=unranked)
