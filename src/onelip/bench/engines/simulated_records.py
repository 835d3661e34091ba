"""Records of jobs that were not run, for simulated studies: complete for all that reads them, and meaningless."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from onelip.bench.runs import RECORD_FILE, RunStatus, new_record
from onelip.bench.search.searcher import GOAL
from onelip.bench.study.job_base import RUNS, Job, JobOptions
from onelip.bench.study.known_records import known_record
from onelip.bench.study.measure_job import MeasureJob
from onelip.bench.study.measured import KIND as MEASURE
from onelip.bench.study.train_job import TrainJob
from onelip.bench.study.trial_job import TrialJob
from onelip.bench.training.loop import KIND as TRAIN


def write_simulated_record(job: Job, study: Path) -> None:
    """What the job would have written; the choice of a search is made for real."""
    if isinstance(job, MeasureJob):
        config = {**job.details, "network": job.network, "hardware": "simulated"}
        _finish(study, MEASURE, config, _MEASURED[job.measurement.quantity], job.name)
    elif isinstance(job, TrialJob):
        _finish(study, TRAIN, job.spec, _trained(job.name), job.name)
    elif isinstance(job, TrainJob):
        spec = job.resolved(study)
        assert spec is not None
        accuracy = random.Random(job.name).random()
        proven = {"test_accuracy": accuracy, "test_certified_accuracy_36": accuracy / 2, "diagnostics": []}
        _finish(study, TRAIN, spec, _trained(job.name) | proven, job.name)
    else:
        job.run(study, JobOptions())


def _trained(name: str) -> dict[str, Any]:
    return {"epochs": 1.0, "steps": 1, GOAL: random.Random(name).random()}


_RATIO = {"ratio": {"median": 1.0}}
_MEASURED: dict[str, dict[str, Any]] = {
    "time": {"fits": True, "training": _RATIO, "inference": _RATIO, "seconds_per_epoch": 1.0},
    "memory": {"fits": True, "training": 0},
    "macs": {"fits": True, "training_step": 0},
}


def _finish(study: Path, kind: str, config: Any, metrics: dict[str, Any], job: str) -> None:
    """One write without a lock: nobody else sees the folder."""
    record = new_record(kind, config, job)
    folder = study / RUNS / record.name
    known = known_record(folder)
    folder.mkdir(parents=True, exist_ok=True)
    done = record.changed(status=RunStatus.FINISHED, metrics=({} if known is None else known.metrics) | metrics)
    (folder / RECORD_FILE).write_text(done.to_json(), encoding="utf-8")
