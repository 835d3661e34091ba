"""The paper's results as rows of a study: what the report draws of ours, it draws of the published ones too."""

from __future__ import annotations

from onelip.bench.published import published_results
from onelip.bench.report.study_rows import Budget, TrainedRun
from onelip.bench.report.trained_models import TrainedModel
from onelip.bench.runs.durations import format_duration
from onelip.bench.runs.specs import NetworkSpec


def published_models(*, failed: bool = False) -> list[TrainedModel]:
    """All trained models of the paper; those whose training broke down only if asked for."""
    models = []
    for row in published_results():
        if row.failed and not failed:
            continue
        network = NetworkSpec(method=row.key, size=row.size, dataset=row.dataset, kernel_size=row.kernel_size)
        budget = Budget(format_duration(3600.0 * row.train_hours), float(row.train_hours))
        run = TrainedRun(
            run="published",
            network=network,
            budget=budget,
            setting="published",
            recipe="paper",
            learning_rate=row.learning_rate,
            weight_decay=row.weight_decay,
            test_images=None,
            accuracy=row.accuracy / 100,
            certified={36: row.certified_accuracy_36 / 100},
            curve=(),
            validation_certified=None,
            epochs=None,
            train_seconds=None,
            log=(),
        )
        models.append(TrainedModel(network, budget, (run,)))
    return models
