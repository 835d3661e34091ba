"""The first epochs of the paper's runs, trained anew, and the defects that it reports of ECO and Sandwich.

A run that follows a published one has its learning rate, weight decay, schedule, starts, paddings and augmentation; our
values stand beside the published ones. ECO and Sandwich are trained for some steps as published and as here, and their
variances, norms and gradients by layer go into the record, from which `onelip paper eco sandwich` makes the figure and
the table of the appendix.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import nn

from onelip.bench.data import Splits, evaluation_batches
from onelip.bench.paper.published import PublishedEpoch, published_curves
from onelip.bench.records import NetworkSpec, Run, RunOptions, RunRecord, RunSpec, RunStatus
from onelip.bench.training import TrainOptions, train
from onelip.bench.training.evaluation import proven_metrics
from onelip.bench.training.resolve import resolve
from onelip.certification.diagnostics import diagnose
from onelip.errors import InvalidInputError

METHODS = tuple(sorted({row.key for row in published_curves()}))
"""Methods with published curves."""

DEFECTIVE = ("eco", "sandwich")
DIAGNOSED_IMAGES = 32
"""Batch of the paper's table of gradients."""

_EPOCHS = {"eco": 2, "sandwich": 1}
"""Of 4,000 images. ECO's variance grows once training has found out that it can; Sandwich needs no training."""

TOLERANCE = 0.04
"""Difference that two seeds of one run may have in their first epochs; 3 standard errors of 10,000 images are less."""


@dataclass(frozen=True)
class EpochComparison:
    """One run after one epoch; shares of the test images, ours proven, the published ones as logged."""

    method: str
    size: str
    epoch: int
    accuracy: float
    published_accuracy: float
    certified_36: float
    published_certified_36: float
    train_loss: float
    published_train_loss: float
    core_seconds: float
    """Processor time of training and evaluation, over all threads."""

    @property
    def verdict(self) -> str:
        """within: both differences are tolerable; better: none is too low, one is higher; lower: one is too low."""
        gains = (self.accuracy - self.published_accuracy, self.certified_36 - self.published_certified_36)
        if min(gains) < -TOLERANCE:
            return "lower"
        return "better" if max(gains) > TOLERANCE else "within"


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
    options = RunOptions(
        network=NetworkSpec(method=method, size=size),
        epochs=epochs,
        schedule_epochs=published.epochs,
        recipe="paper",
        lr=published.lr,
        weight_decay=published.weight_decay,
        validation_fraction=0.0,
        seed=seed,
    )
    return resolve(options)


def reproduce(spec: RunSpec, runs_dir: Path, *, device: str | None = None, progress: bool = False) -> EpochComparison:
    """Train, or continue, or read what is there, and compare the last epoch with the published one."""
    assert spec.network.size is not None
    assert spec.epochs is not None
    published = published_epoch(spec.network.method, spec.network.size, spec.epochs)
    start = time.process_time()

    def put_test_results(run: Run, model: nn.Module, splits: Splits) -> None:
        if "test_accuracy" not in run.record.metrics:
            metrics = run.record.metrics | proven_metrics(model, splits.test, "test", progress)
            run.update(metrics=metrics | {"core_seconds": time.process_time() - start})

    options = TrainOptions(device=device, progress=progress, on_finished=put_test_results)
    record = train(spec, runs_dir, options)
    if record.status is not RunStatus.FINISHED:
        raise InvalidInputError(f"{runs_dir / record.name}: the run is {record.status.value}: {record.reason}")
    return EpochComparison(
        method=published.key,
        size=published.size,
        epoch=published.epoch,
        accuracy=record.metrics["test_accuracy"],
        published_accuracy=published.test_accuracy,
        certified_36=record.metrics["test_certified_accuracy_36"],
        published_certified_36=published.certified_36,
        train_loss=record.metrics["train_loss"],
        published_train_loss=published.train_loss,
        core_seconds=record.metrics["core_seconds"],
    )


def defect_spec(method: str, setting: Literal["own", "published"], width: int | None = None) -> RunSpec:
    """A short run on the embedded images, ConvNet XS unless a width is given."""
    network = NetworkSpec(method=method, width=width, dataset="cifar10-mini")
    return resolve(RunOptions(network=network, epochs=_EPOCHS[method], recipe="short", setting=setting))


def train_and_diagnose(
    spec: RunSpec, runs_dir: Path, *, device: str | None = None, progress: bool = False
) -> RunRecord:
    """Train, or continue, or read what is there."""
    return train(spec, runs_dir, TrainOptions(device=device, progress=progress, on_finished=_put_diagnostics))


def _put_diagnostics(run: Run, model: nn.Module, splits: Splits) -> None:
    if "diagnostics" in run.record.metrics:
        return
    images, labels = next(iter(evaluation_batches(splits.test, DIAGNOSED_IMAGES)))
    run.update(metrics=run.record.metrics | {"diagnostics": diagnose(model, images, labels).as_records()})
