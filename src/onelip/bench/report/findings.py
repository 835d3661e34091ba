"""What the results say in a few sentences, for the top of the page. Only what the data tell apart is called better."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onelip.bench.report.intervals import MedianTime, differ
from onelip.bench.report.method_style import method_style
from onelip.bench.report.report_table import listed
from onelip.bench.report.study_rows import WITHOUT_GUARANTEE, MeasuredTime, StudyResults
from onelip.bench.report.trained_models import (
    TrainedModel,
    by_dataset,
    longest_budget,
    main_memory,
    main_times,
    network_label,
    relative_to_plain,
)
from onelip.bench.runs import RunStatus
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


def findings(study: StudyResults, models: Sequence[TrainedModel]) -> list[str]:
    """Best certified accuracy of each data set, what is cheapest in time and in memory, and the notes of the study."""
    compared = [model for model in longest_budget(models) if model.has_guarantee and model.certified_36]
    sentences = [_best(dataset, own) for dataset, own in by_dataset(compared).items()]
    warnings = [study.mixed_devices] if study.mixed_devices else []
    sentences += _other_networks(models, compared)
    if compared and all(model.certified_36 and model.certified_36.seeds == 1 for model in compared):
        sentences.append(TRAINED_ONCE)
    return [*warnings, *sentences, *_fastest(main_times(study)), *_memory_range(study), *study.notes]


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
    phases: list[tuple[str, Callable[[MeasuredTime], MedianTime]]] = [
        ("training", lambda row: row.training.ratio),
        ("inference", lambda row: row.inference.ratio),
    ]
    sentences = []
    for phase, of in phases if rows else ():
        best = min(rows, key=lambda row: of(row).median)
        known = [row for row in rows if of(row).is_bounded]
        equal = [row for row in known if not differ(of(row), of(best)) and row is not best]
        if len(known) < len(rows):
            others = ", as far as can be told: some were timed in too few rounds for an interval"
        elif equal:
            names = listed([network_label(row.network) for row in equal[:3]], len(equal) - 3)
            others = f", not distinguishable from {names}"
        else:
            others = ""
        sentences.append(
            f"The {phase} time relative to plain is lowest for {network_label(best.network)}: {of(best)} times the "
            f"plain network's{others}."
        )
    return sentences


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
    hours = sum(run.seconds for run in study.runs if run.kind != "search") / 3600
    return [
        ("finished runs", f"{finished} of {len(study.runs)}"),
        ("methods", ", ".join(method_style(method).label for method in sorted(methods)) or "none"),
        ("data sets", ", ".join(datasets) or "none"),
        ("computing time", f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"),
    ]
