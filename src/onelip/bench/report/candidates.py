"""Candidates of the advisor: measured where a study has results for the data set, else published.

Costs come from the study's own measurements first, then from the shipped predictions. Every figure keeps its source.
"""

from __future__ import annotations

from collections import defaultdict

from onelip.bench.published import published_results
from onelip.bench.report.advice import BudgetResult, Candidate
from onelip.bench.report.cost_table import image_size, predicted_costs
from onelip.bench.report.rows import Evidence
from onelip.bench.report.style import BASELINES
from onelip.bench.report.summaries import ModelSummary, all_settings, chosen_models, main_memory, main_times

PUBLISHED_SOURCE = "published: the paper's results, its code on an A100"
MEASURED_SOURCE = "measured: this study"

KERNEL_SIZE = 3

_Key = tuple[str, str, int | None]


class CostBook:
    """Memory and latency of networks by (method, size, image side), with sources."""

    def __init__(self, evidence: Evidence | None) -> None:
        self._memory: dict[_Key, tuple[int, str]] = {}
        self._latency: dict[_Key, tuple[float, str]] = {}
        if evidence is None:
            return
        for row in main_memory(evidence):
            key = (row.key.method, row.key.size, image_size(row.key.dataset))
            self._memory[key] = (row.training, f"{row.source}, batch {row.key.batch_size}, this study")
        for row in main_times(evidence):
            key = (row.key.method, row.key.size, image_size(row.key.dataset))
            self._latency[key] = (row.inference_ratio[0], f"measured on {row.hardware}, this study")

    def memory(self, method: str, size: str, dataset: str) -> tuple[int | None, str]:
        """Training memory in bytes and where the figure is from."""
        key = (method, size, image_size(dataset))
        if key in self._memory:
            return self._memory[key]
        row = predicted_costs().get((method, size, image_size(dataset) or 0))
        return (None, "not known") if row is None else (row.training_bytes, "predicted by onelip, batch 256")

    def latency(self, method: str, size: str, dataset: str) -> tuple[float | None, str]:
        """Inference time relative to the plain network of the same size, and where the figure is from."""
        key = (method, size, image_size(dataset))
        if key in self._latency:
            return self._latency[key]
        row = predicted_costs().get((method, size, image_size(dataset) or 0))
        if row is None:
            return None, "not known"
        return row.inference_operations_ratio, "counted operations of cached inference, not a time"


def measured_candidates(evidence: Evidence) -> list[Candidate]:
    """All models of a study with 3 x 3 kernels that have a certified accuracy on the test set."""
    groups: dict[tuple[str, str, str], list[ModelSummary]] = defaultdict(list)
    for model in chosen_models(all_settings(evidence.training)):
        if model.kernel_size == KERNEL_SIZE and model.certified_36 is not None and model.method not in BASELINES:
            groups[model.dataset, model.method, model.size].append(model)
    costs = CostBook(evidence)
    return [
        _candidate(*key, tuple(_measured_result(model) for model in models), MEASURED_SOURCE, costs)
        for key, models in groups.items()
    ]


def published_candidates(evidence: Evidence | None = None) -> list[Candidate]:
    """All models of the paper that trained to the end; costs from the study's measurements where it has them."""
    groups: dict[tuple[str, str, str], list[BudgetResult]] = defaultdict(list)
    for row in published_results():
        if row.kernel_size == KERNEL_SIZE and not row.failed:
            result = BudgetResult(
                f"{row.train_hours}h", float(row.train_hours), row.accuracy / 100, row.certified_accuracy_36 / 100
            )
            groups[row.dataset, row.key, row.size].append(result)
    costs = CostBook(evidence)
    return [_candidate(*key, tuple(results), PUBLISHED_SOURCE, costs) for key, results in groups.items()]


def _measured_result(model: ModelSummary) -> BudgetResult:
    assert model.certified_36 is not None
    accuracy = None if model.accuracy is None else model.accuracy.mean
    return BudgetResult(model.budget, model.budget_hours, accuracy, model.certified_36)


def _candidate(
    dataset: str, method: str, size: str, results: tuple[BudgetResult, ...], source: str, costs: CostBook
) -> Candidate:
    memory = costs.memory(method, size, dataset)
    latency = costs.latency(method, size, dataset)
    return Candidate(dataset, method, size, results, source, *memory, *latency)
