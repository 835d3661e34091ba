"""The trained models that the paper printed, as the models of a study."""

from __future__ import annotations

import functools

from onelip.bench.paper.published import published_results
from onelip.bench.records.durations import format_duration
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.records.views import Training, TrainResult
from onelip.bench.report.study_rows import Budget, TrainedRun
from onelip.bench.report.trained_models import TrainedModel


@functools.cache
def published_models(*, failed: bool = False) -> tuple[TrainedModel, ...]:
    """All of them, with one seed each; those whose training broke down only if asked for."""
    models = []
    for row in published_results():
        if row.failed and not failed:
            continue
        network = NetworkSpec(method=row.key, size=row.size, dataset=row.dataset, kernel_size=row.kernel_size)
        spec = Training(network=network, lr=row.learning_rate, weight_decay=row.weight_decay)
        shares = row.accuracy / 100, row.certified_accuracy_36 / 100
        result = TrainResult(test_accuracy=shares[0], test_certified_accuracy_36=shares[1])
        budget = Budget(format_duration(3600.0 * row.train_hours), float(row.train_hours))
        models.append(TrainedModel(network, budget, (TrainedRun(spec, result, budget, setting="published"),)))
    return tuple(models)


def published_result(model: TrainedModel) -> TrainedModel | None:
    """What the paper printed for the same data set, network and budget, if its training did not break down."""
    return _by_budget().get((model.network, model.budget.hours if model.budget.epochs is None else None))


@functools.cache
def _by_budget() -> dict[tuple[NetworkSpec, float | None], TrainedModel]:
    return {(model.network, model.budget.hours): model for model in published_models()}
