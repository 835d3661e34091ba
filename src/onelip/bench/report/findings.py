"""What the evidence says in a few sentences: the beginning of the page."""

from __future__ import annotations

from collections.abc import Sequence

from onelip.bench.report.rows import Evidence
from onelip.bench.report.style import BASELINES, REFERENCE, method_style
from onelip.bench.report.summaries import ModelSummary, longest_budget, main_memory, main_times, memory_ratios
from onelip.bench.runs import RunStatus


def findings(evidence: Evidence, models: Sequence[ModelSummary]) -> list[str]:
    """Best certified accuracy of each data set, cheapest in time, cheapest in memory, and notes of the study."""
    return [*_best_models(models), *_fastest(evidence), *_smallest(evidence), *evidence.notes]


def _name(model: ModelSummary) -> str:
    return f"{method_style(model.method).label} {model.size}"


def _best_models(models: Sequence[ModelSummary]) -> list[str]:
    compared = [model for model in longest_budget(models) if model.certified_36 is not None]
    sentences = []
    for dataset in sorted({model.dataset for model in compared}):
        own = sorted((m for m in compared if m.dataset == dataset), key=lambda m: -(m.certified_36 or 0.0))
        best = own[0]
        sentence = (
            f"{dataset}, budget {best.budget}: {_name(best)} certifies most, {100 * (best.certified_36 or 0):.1f} % "
            "of the "
            "test images at radius 36/255"
        )
        if len(own) > 1:
            sentence += f"; then {_name(own[1])} with {100 * (own[1].certified_36 or 0):.1f} %"
        sentences.append(sentence + ".")
    return sentences


def _fastest(evidence: Evidence) -> list[str]:
    rows = [row for row in main_times(evidence) if row.key.method not in BASELINES]
    if not rows:
        return []
    training = min(rows, key=lambda row: row.train_ratio[0])
    inference = min(rows, key=lambda row: row.inference_ratio[0])
    return [
        f"Closest to plain convolutions in time: {method_style(training.key.method).label} {training.key.size} in "
        "training "
        f"({training.train_ratio[0]:.2f}x), {method_style(inference.key.method).label} {inference.key.size} in "
        "inference "
        f"({inference.inference_ratio[0]:.2f}x)."
    ]


def _smallest(evidence: Evidence) -> list[str]:
    ratios = {key: value[0] for key, value in memory_ratios(main_memory(evidence)).items() if key[0] not in BASELINES}
    if not ratios:
        return []
    low, high = min(ratios, key=lambda key: ratios[key]), max(ratios, key=lambda key: ratios[key])
    return [
        f"Training memory goes from {ratios[low]:.2f}x ({method_style(low[0]).label} {low[1]}) to "
        f"{ratios[high]:.2f} x "
        f"({method_style(high[0]).label} {high[1]}) that of plain convolutions."
    ]


def facts(evidence: Evidence) -> list[tuple[str, str]]:
    """Figures of the page's head: (name, value)."""
    finished = sum(run.status is RunStatus.FINISHED for run in evidence.runs)
    methods = {run.record.network.method for run in evidence.runs} - {REFERENCE}
    datasets = {run.record.network.dataset for run in evidence.runs}
    # A search takes the time of its trials, which are runs themselves.
    hours = sum(run.record.seconds for run in evidence.runs if run.record.kind != "search") / 3600
    return [
        ("finished runs", f"{finished} of {len(evidence.runs)}"),
        ("methods", str(len(methods))),
        ("data sets", ", ".join(sorted(datasets)) or "none"),
        ("computing time", f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"),
    ]
