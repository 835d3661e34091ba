"""The defects that the comparison paper reports of ECO and Sandwich, and that onelip's own layers do not have them.

Each is trained for some steps as published and as here; variances, norms and gradients by layer go into its record,
from which `onelip paper eco sandwich` makes the figure and the table of the appendix.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torch import nn

from onelip.bench.data import Splits, evaluation_batches
from onelip.bench.runs import NetworkSpec, Run, RunRecord, RunSpec
from onelip.bench.training import TrainOptions, train
from onelip.certification.diagnostics import diagnose

DEFECTIVE = ("eco", "sandwich")
IMAGES = 32
"""Batch of the paper's table of gradients."""

_EPOCHS = {"eco": 2, "sandwich": 1}
"""Of 4,000 images. ECO's variance grows once training has found out that it can; Sandwich needs no training."""


def defect_spec(method: str, setting: Literal["own", "published"], width: int | None = None) -> RunSpec:
    """A short run on the embedded images, ConvNet XS unless a width is given."""
    network = NetworkSpec(method=method, width=width, dataset="cifar10-mini")
    return RunSpec(network=network, epochs=_EPOCHS[method], recipe="short", setting=setting)


def train_and_diagnose(spec: RunSpec, runs_dir: Path, *, progress: bool = False) -> RunRecord:
    """Train, or continue, or read what is there."""
    return train(spec, runs_dir, TrainOptions(progress=progress, on_finished=_put_diagnostics))


def _put_diagnostics(run: Run, model: nn.Module, splits: Splits) -> None:
    if "diagnostics" in run.record.metrics:
        return
    images, labels = next(iter(evaluation_batches(splits.test, IMAGES)))
    run.update(metrics=run.record.metrics | {"diagnostics": diagnose(model, images, labels).as_records()})
