"""Test results of a trained run: accuracy and proven certified accuracy, added to its record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from onelip.bench.data import DataSplit, evaluation_batches
from onelip.bench.records import RunRecord, RunSpec, RunStatus, read_dataclass, read_record, start_run
from onelip.bench.records.machine import usable_device
from onelip.bench.training.loop import KIND, trained_network
from onelip.bench.training.trainer import load_splits
from onelip.certification import certified_accuracy
from onelip.errors import InvalidInputError
from onelip.protocol import RADII, RADIUS_NUMERATORS

SplitName = Literal["test", "validation"]

CURVE_POINTS = 86
"""Certified accuracy is also recorded at the radii 0, 3/255, 6/255, ..., 255/255, among which are the paper's four."""


def evaluate_run(
    folder: Path,
    split: SplitName = "test",
    *,
    device: str | None = None,
    progress: bool | None = None,
    allow: Sequence[str] = (),
) -> RunRecord:
    """Certify the network of a finished run on a split and put the results into its record.

    The metrics are `<split>_accuracy`, `<split>_certified_accuracy_36` (72, 108, 255), with the proven bound
    `<split>_lipschitz_bound`; infinity, and nothing certified, where no bound is known; `<split>_images`, how many
    there were, and `<split>_certified_curve`, certified accuracy at `CURVE_POINTS` radii. Those of the validation
    split are called `proven_validation_...`, since training has put its estimates there. `allow` names the function
    that builds a user's own model, if the run has one and it may be imported.
    """
    record = read_record(folder)
    if record.kind != KIND:
        raise InvalidInputError(f"{folder}: is a run of the kind {record.kind!r}, not a training run")
    spec = read_dataclass(RunSpec, record.config, f"{folder}: config")
    if record.status is not RunStatus.FINISHED:
        raise InvalidInputError(f"{folder}: the run is {record.status.value}; only a finished run can be evaluated")
    where = usable_device(device)
    model = trained_network(folder, record, allow).to(where).eval()
    splits = load_splits(spec, where)
    chosen = splits.test if split == "test" else splits.validation
    if not len(chosen):
        raise InvalidInputError(f"{folder}: the {split} split has no images")
    prefix = "test" if split == "test" else "proven_validation"
    metrics = proven_metrics(model, chosen, prefix, progress)
    with start_run(folder.parent, KIND, record.config) as run:
        return run.update(metrics=run.record.metrics | metrics)


def proven_metrics(model: nn.Module, split: DataSplit, prefix: str, progress: bool | None) -> dict[str, Any]:
    """Accuracy, certified accuracies and the bound that proves them, named as in a record."""
    proven = certified_accuracy(model, evaluation_batches(split, 250), RADII, progress=progress)
    named = zip(RADIUS_NUMERATORS, RADII, strict=True)
    shares = {f"{prefix}_certified_accuracy_{name}": proven.certified[radius] for name, radius in named}
    _, curve = proven.curve(CURVE_POINTS, RADII[-1])
    return {
        f"{prefix}_accuracy": proven.accuracy,
        **shares,
        f"{prefix}_lipschitz_bound": proven.lipschitz,
        f"{prefix}_images": len(proven.radii),
        f"{prefix}_certified_curve": curve.tolist(),
    }
