"""Candidates of the advisor: measured where a study has results for the data set, else published.

Costs come from the study's own measurements. Memory that was not measured is predicted. Latency is measured or not
known; beside published results stands how fast the paper's own code evaluated them. Every figure keeps its source.
"""

from __future__ import annotations

from collections import defaultdict

from onelip.bench.published import published_epochs, published_results, published_speeds
from onelip.bench.published.predicted_costs import IMAGE_SIZES, predicted_training_memory
from onelip.bench.report.advice import BudgetResult, Candidate
from onelip.bench.report.result_tables import published_share
from onelip.bench.report.study_rows import MeasuredMemory, MeasuredTime, StudyResults
from onelip.bench.report.trained_models import TrainedModel, all_settings, chosen_models, main_memory, main_times
from onelip.bench.runs.specs import NetworkSpec

PUBLISHED_SOURCE = "published in the paper (its code, one A100)"
MEASURED_SOURCE = "measured in this study"
NOT_MEASURED = "not measured here"

_Place = tuple[str, str, int | None]
"""Method, size and image side: what memory and time of a network depend on."""


def _place(network: NetworkSpec) -> _Place:
    return network.method, network.size_name, IMAGE_SIZES.get(network.dataset)


class MeasuredCosts:
    """Measurements of a study by method, size and image side."""

    def __init__(self, study: StudyResults | None) -> None:
        self._memory: dict[_Place, MeasuredMemory] = {}
        self.times: dict[_Place, MeasuredTime] = {}
        if study is not None:
            self._memory = {_place(row.network): row for row in main_memory(study) if row.network.kernel_size == 3}
            self.times = {_place(row.network): row for row in main_times(study) if row.network.kernel_size == 3}

    def candidate(self, network: NetworkSpec, results: list[BudgetResult], source: str) -> Candidate:
        """The network with its costs and where they are from."""
        place = _place(network)
        measured, time = self._memory.get(place), self.times.get(place)
        predicted = predicted_training_memory("gpu").get((place[0], place[1], place[2] or 0))
        if measured is not None:
            memory = (measured.training, f"{measured.source}, batch {measured.batch_size}, this study")
        else:
            memory = (predicted, "not known" if predicted is None else "predicted by onelip for a GPU, batch 256")
        latency: tuple[float | None, str] = (None, NOT_MEASURED)
        if time is not None:
            latency = (time.inference.ratio.median, f"measured on {time.hardware}, batch {time.batch_size}")
        slowness = _published_slowness(network) if time is None and source == PUBLISHED_SOURCE else None
        name = (network.dataset, network.method, network.size_name)
        return Candidate(*name, tuple(results), source, *memory, *latency, slowness)


def _published_slowness(network: NetworkSpec) -> float | None:
    """From the images per second in the evaluation of the paper's runs on 32 x 32 images, XS, S and M."""
    speeds = {method: s.inference for (method, size), s in published_speeds().items() if size == network.size_name}
    if network.method not in speeds or IMAGE_SIZES.get(network.dataset) != 32:
        return None
    return max(speeds.values()) / speeds[network.method]


def measured_candidates(study: StudyResults) -> list[Candidate]:
    """All models of a study with 3 x 3 kernels that have a certified accuracy on the test set."""
    groups: dict[NetworkSpec, list[BudgetResult]] = defaultdict(list)
    for model in chosen_models(all_settings(study.trained)):
        usual = model.network.kernel_size == 3 and model.is_usual
        if usual and model.has_guarantee and model.certified_36 is not None:
            groups[model.network].append(_result(model))
    costs = MeasuredCosts(study)
    return [costs.candidate(network, results, MEASURED_SOURCE) for network, results in groups.items()]


def _result(model: TrainedModel) -> BudgetResult:
    share, accuracy = model.certified_36, model.accuracy
    assert share is not None
    return BudgetResult(model.budget.name, model.budget.hours, accuracy and accuracy.mean, share.mean, share.error)


def published_candidates(study: StudyResults | None = None) -> list[Candidate]:
    """All models of the paper that trained to the end, with the study's costs where it has measured the network.

    Where the study has measured the network's epoch, the hours are those of the paper's epochs on that machine: the
    epochs of two hours on an A100, in proportion to the budget. Else they are hours on an A100, and called that.
    """
    costs = MeasuredCosts(study)
    in_two_hours = {(row.dataset, row.key, row.size): row.epochs for row in published_epochs()}
    groups: dict[NetworkSpec, list[BudgetResult]] = defaultdict(list)
    for row in published_results():
        if row.kernel_size != 3 or row.failed:
            continue
        network = NetworkSpec(method=row.key, size=row.size, dataset=row.dataset)
        family = "cifar" if row.dataset.startswith("cifar") else row.dataset
        epochs, time = in_two_hours.get((family, row.key, row.size)), costs.times.get(_place(network))
        hours, budget = float(row.train_hours), f"{row.train_hours} h on an A100"
        if epochs is not None and time is not None:
            count = epochs * row.train_hours / 2
            hours = count * time.epoch_seconds / 3600
            budget = f"{count:,.0f} epochs, {hours:,.3g} h here"
        share = published_share(row, row.certified_accuracy_36)
        groups[network].append(BudgetResult(budget, hours, row.accuracy / 100, share.mean, share.error))
    return [costs.candidate(network, results, PUBLISHED_SOURCE) for network, results in groups.items()]
