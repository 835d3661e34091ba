"""One small study for all engines: a trial, the choice that follows, a training, and one that is the trial."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from fake_jobs import InlineEngine

from onelip.bench.engines.driver import Driver, Silent
from onelip.bench.records import RunRecord, load_records
from onelip.bench.study.attempts import Attempt, read_attempts
from onelip.bench.study.job_base import Job, JobStatus
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.study_file import add_to_study

OPTIONS = StudyOptions(
    methods=("aol", "standard"),
    sizes=(),
    width=4,
    datasets=("tiny",),
    epochs=2,
    batch_size=32,
    search_runs=1,
    recipe="short",
    clock="cores",
    measure="none",
)
COMMAND = (
    "compare --methods aol standard --width 4 --datasets tiny --epochs 2 --batch-size 32 --search-runs 1 "
    "--measure none --device cpu --no-report"
)


def planned(study: Path) -> tuple[Job, ...]:
    """Its jobs, in its folder."""
    jobs = _jobs()
    add_to_study(study, [OPTIONS], jobs)
    return jobs


def run_inline(study: Path) -> None:
    """Do all of it in this process, undisturbed."""
    states = Driver(planned(study), study, InlineEngine(study), Silent()).run()
    assert {state.status for state in states.values()} == {JobStatus.DONE}


def attempts_of(study: Path) -> dict[str, list[Attempt]]:
    """Attempts by the name of their job."""
    return {job.name: read_attempts(job, study) for job in _jobs()}


@functools.cache
def _jobs() -> tuple[Job, ...]:
    return plan(OPTIONS)


def assert_same_records(expected: Path, found: Path) -> None:
    """The same runs with the same results and weights, bit by bit; only times differ."""
    ours, theirs = ({run.folder.name: run for run in load_records(one / "runs").runs} for one in (expected, found))
    assert ours.keys() == theirs.keys()
    for name, run in ours.items():
        other = theirs[name]
        assert (other.status, other.record.job) == (run.status, run.record.job)
        assert _timeless(other.record) == _timeless(run.record)
        if run.record.kind == "train":
            weights = [safetensors.torch.load_file(one.folder / "model.safetensors") for one in (run, other)]
            assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def _timeless(record: RunRecord) -> dict[str, Any]:
    return {name: value for name, value in record.metrics.items() if "second" not in name}
