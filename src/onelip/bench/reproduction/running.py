"""Runs that follow a published one: its learning rate, weight decay, schedule, starts, paddings and augmentation."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from onelip.bench.data import Splits
from onelip.bench.published import PublishedEpoch, published_curves
from onelip.bench.reproduction.comparing import Comparison, compare
from onelip.bench.runs import NetworkSpec, Run, RunRecord, RunSpec, RunStatus
from onelip.bench.training import TrainOptions, train
from onelip.bench.training.evaluation import proven_metrics
from onelip.errors import InvalidInputError

METHODS = tuple(sorted({row.key for row in published_curves()}))
"""Methods with published curves."""

CORE_SECONDS = "core_seconds"
"""Metric of the record: processor time of training and evaluation, over all threads."""


def published_epoch(method: str, size: str, epoch: int) -> PublishedEpoch:
    """What the paper's run of this network had after an epoch."""
    run = [row for row in published_curves() if (row.key, row.size) == (method, size)]
    if not run:
        known = sorted({row.size for row in published_curves()})
        raise InvalidInputError(
            f"no published curve of {method} {size}, use one of {', '.join(METHODS)} and of {', '.join(known)}"
        )
    found = next((row for row in run if row.epoch == epoch), None)
    if found is None:
        early = ", ".join(str(row.epoch) for row in run[:15])
        raise InvalidInputError(f"the published curve of {method} {size} has no epoch {epoch}, use {early}, ...")
    return found


def reproduction_spec(method: str, size: str, epochs: int, seed: int = 0) -> RunSpec:
    """The run that trains the first epochs of the published one, on all training images."""
    published = published_epoch(method, size, epochs)
    return RunSpec(
        network=NetworkSpec(method=method, size=size),
        epochs=epochs,
        schedule_epochs=published.epochs,
        recipe="paper",
        lr=published.lr,
        weight_decay=published.weight_decay,
        validation_fraction=0.0,
        seed=seed,
    )


def reproduce(spec: RunSpec, runs_dir: Path, *, device: str | None = None, progress: bool = False) -> Comparison:
    """Train, or continue, or read what is there, and compare the last epoch with the published one."""
    assert spec.network.size is not None
    assert spec.epochs is not None
    published = published_epoch(spec.network.method, spec.network.size, spec.epochs)
    start = _processor_seconds()
    options = TrainOptions(device=device, progress=progress, on_finished=_tested(start, progress))
    record = train(spec, runs_dir, options)
    if record.status is not RunStatus.FINISHED:
        raise InvalidInputError(f"{runs_dir / record.name}: the run is {record.status.value}: {record.reason}")
    return compare(published, _numbers(record))


def _tested(start: float, progress: bool) -> Callable[[Run, nn.Module, Splits], None]:
    def put_test_results(run: Run, model: nn.Module, splits: Splits) -> None:
        if "test_accuracy" in run.record.metrics:
            return
        metrics: dict[str, Any] = proven_metrics(model, splits.test, "test", progress)
        run.update(metrics=run.record.metrics | metrics | {CORE_SECONDS: _processor_seconds() - start})

    return put_test_results


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _numbers(record: RunRecord) -> dict[str, float]:
    names = ("test_accuracy", "test_certified_accuracy_36", "train_loss", CORE_SECONDS)
    return {name: float(record.metrics[name]) for name in names}
