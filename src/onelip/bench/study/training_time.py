"""How long trainings take, from their budget or from measured steps, and how far one is."""

from __future__ import annotations

from pathlib import Path

from onelip.bench.runs import RunSpec
from onelip.bench.study.measured import seconds_per_epoch
from onelip.bench.training.journal import read_log


def estimated_training_seconds(spec: RunSpec, study: Path) -> float | None:
    """The budget, or what so many epochs take if the study has measured it."""
    if spec.epochs is None:
        return spec.budget_seconds
    epoch = seconds_per_epoch(study, spec.network, spec.settings.batch_size)
    return None if epoch is None else spec.epochs * epoch


def part_trained(folder: Path) -> float | None:
    """The part of a run that its last validation has seen; 1 while it is certified."""
    entries = read_log(folder)
    return float(entries[-1]["fraction"]) if entries else None
