"""The search for learning rate and weight decay: its points, a job for each trial, and one that chooses the best.

A point is a function of the search's seed and the trial's number: whoever does the job, and however often it is begun
again, draws the same one, and no two trials share one. The draws are those of Optuna's random sampler, bit for bit,
under whose names trials of earlier studies are found. The record of the choice holds the point that won.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onelip.bench.records import NetworkSpec, RunRecord, RunSpec, RunStatus, run_name, start_run, view
from onelip.bench.records.views import SearchResult
from onelip.bench.study.estimates import seconds_per_epoch
from onelip.bench.study.job_base import RUNS, Job, JobOptions, JobState, JobStatus, state_of
from onelip.bench.training import TrainOptions, train
from onelip.bench.training.journal import read_log
from onelip.bench.training.loop import KIND as TRAINING
from onelip.bench.training.loop import OnFinished
from onelip.bench.training.resolve import resolve
from onelip.errors import InvalidInputError, OnelipError

BOUNDS = {"lr": (1e-4, 1e-1), "weight_decay": (10**-5.5, 10**-3.5)}
"""The paper's space; points are log-uniform in it."""

GOAL = "validation_certified_accuracy_36"
"""Metric by which the best point is chosen."""

KIND = "search"
_SECONDS = 3.0  # mostly those of starting a process


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """A study: what to train, how many points, how they are chosen."""

    base: RunSpec
    """The run of which learning rate and weight decay are searched."""
    trials: int = 16
    """Number of points."""
    sampler: Literal["random"] = "random"
    """As in the paper; it and the pruner are in the hashes that name searches."""
    pruner: Literal["none"] = "none"
    """Trials are trained to their end."""
    search_seed: int = 0
    """Chooses the points."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise InvalidInputError(f"trials must be 1 or more, got {self.trials}")
        if self.base.validation_fraction == 0:
            raise InvalidInputError("a search needs validation images: validation_fraction must be above 0")
        # Both are searched: whatever they are in the base must not give the study another name.
        object.__setattr__(self, "base", resolve(self.base, lr=None, weight_decay=0.0))

    @property
    def name(self) -> str:
        """Name of the study's folder."""
        return run_name("search", self.identity)

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the study, as its record holds it."""
        return {"network": self.base.network, "budget": self.base.budget, "search": self}


def point(config: SearchConfig, number: int) -> Mapping[str, float]:
    """Learning rate and weight decay of one trial, which do not depend on the results of other trials."""
    if not 0 <= number < config.trials:
        raise InvalidInputError(f"the search has the trials 0 to {config.trials - 1}, not {number}")
    return {name: _draw(f"{config.search_seed}/{number}/{name}", *bounds) for name, bounds in BOUNDS.items()}


def _draw(seed: str, low: float, high: float) -> float:
    """Log-uniform between the bounds, below the higher one."""
    digest = hashlib.sha256(seed.encode()).digest()
    generator = np.random.RandomState(int.from_bytes(digest[:4], "little"))
    return min(math.exp(generator.uniform(math.log(low), math.log(high))), float(np.nextafter(high, low)))


class TrainingJob(Job):
    """A training, or the choice among several: `spec` is what is trained."""

    spec: RunSpec

    @property
    def network(self) -> NetworkSpec:
        """What is trained."""
        return self.spec.network

    @property
    def details(self) -> dict[str, Any]:
        """Training time and batch."""
        return {name: getattr(self.spec, name) for name in ("budget", "epochs", "batch_size")}

    def resolved(self, study: Path) -> RunSpec | None:
        """The run with all that a search finds; None before it has."""
        return self.spec

    def folder(self, study: Path) -> Path | None:
        """Where the run is; None before the end of the search."""
        spec = self.resolved(study)
        return None if spec is None else study / RUNS / _run_name(spec)

    def train(self, spec: RunSpec, study: Path, options: JobOptions, on_finished: OnFinished | None = None) -> None:
        """Train, or continue."""
        how = TrainOptions(
            device=self.device,
            checkpoint_seconds=options.checkpoint_seconds,
            progress=options.progress,
            job=self.name,
            on_finished=on_finished,
            stop_requested=options.stop_requested,
        )
        train(spec, study / RUNS, how)

    def estimated_seconds(self, study: Path) -> float | None:
        """The budget, or what so many epochs take if the study has measured it."""
        if self.spec.epochs is None:
            return self.spec.budget_seconds
        epoch = seconds_per_epoch(study, self.network, self.spec.batch_size)
        return None if epoch is None else self.spec.epochs * epoch

    def part_done(self, study: Path) -> float | None:
        """The part of the run that its last validation has seen; 1 while it is certified."""
        folder = self.folder(study)
        entries = [] if folder is None else read_log(folder)
        return float(entries[-1]["fraction"]) if entries else None


@functools.lru_cache(4096)
def with_point(spec: RunSpec, lr: float, weight_decay: float) -> RunSpec:
    """The run with this learning rate and weight decay."""
    return dataclasses.replace(spec, lr=lr, weight_decay=weight_decay)


@functools.lru_cache(4096)
def _run_name(spec: RunSpec) -> str:
    return run_name(TRAINING, spec)


@dataclass(frozen=True)
class TrialJob(TrainingJob):
    """One trial. A point that diverges is a result of the search like any other: the worst."""

    search: SearchConfig
    number: int
    device: str = "cpu"

    kind = "trial"

    def make_name(self) -> str:
        """By the search and the number, not by the point, which nobody else has to compute."""
        base = self.search.base
        return run_name("trial", {"network": base.network, "budget": base.budget, **self.entry})

    @property
    def details(self) -> dict[str, Any]:
        """Its number too."""
        return super().details | {"trial": self.number}

    @property
    def entry(self) -> dict[str, Any]:
        """Which trial of which search."""
        return {"search": self.search.name, "number": self.number}

    @functools.cached_property
    def spec(self) -> RunSpec:  # type: ignore[override]
        """The run of its point."""
        return with_point(self.search.base, **point(self.search, self.number))

    def state_from(self, record: RunRecord) -> JobState:
        """Done when trained to the end, or to where it diverged or was given up."""
        state = super().state_from(record)
        if state.status is JobStatus.FAILED and state.is_final:
            return JobState(JobStatus.DONE, None, state.reason or "", state.seconds)
        return state

    def result(self, record: RunRecord) -> str:
        """Its score."""
        certified = record.metrics.get(GOAL)
        return "" if certified is None else f"validation certified {100 * certified:.1f} %"

    def run(self, study: Path, options: JobOptions) -> None:
        """Train."""
        self.train(self.spec, study, options)


@dataclass(frozen=True)
class SearchJob(TrainingJob):
    """The choice among the trials of one search by validation certified accuracy at 36/255; the test set is not seen.

    Trials that diverged or failed take no part in it. The first of equals wins.
    """

    config: SearchConfig
    device: str = "cpu"

    kind = "search"

    def make_name(self) -> str:
        """Name of the record."""
        return self.config.name

    @property
    def spec(self) -> RunSpec:  # type: ignore[override]
        """What is searched for."""
        return self.config.base

    @property
    def details(self) -> dict[str, Any]:
        """The number of the trials too."""
        return super().details | {"trials": self.config.trials}

    @property
    def entry(self) -> dict[str, Any]:
        """The search."""
        return {"spec": self.config}

    @functools.cached_property
    def needs(self) -> tuple[TrialJob, ...]:  # type: ignore[override]
        """The trials."""
        return tuple(TrialJob(self.config, number, self.device) for number in range(self.config.trials))

    def folder(self, study: Path) -> Path:
        """Where the choice is recorded."""
        return study / RUNS / self.name

    def winner(self, study: Path) -> dict[str, float] | None:
        """Learning rate and weight decay of the best trial; None before the end of the search."""
        record = self.record(study) if self.recorded(study).status is JobStatus.DONE else None
        return None if record is None else asdict(_point_of(record))

    def result(self, record: RunRecord) -> str:
        """The point that won."""
        won = _point_of(record)
        return f"lr {won.lr:.2g}, weight decay {won.weight_decay:.2g}"

    def run(self, study: Path, options: JobOptions) -> None:
        """Choose and record."""
        with start_run(study / RUNS, KIND, self.config.identity, job=self.name) as run:
            if run.record.status is RunStatus.FINISHED:
                return
            records = _trial_records(self, study)
            best = best_trial(self, study)
            if best is None:
                reasons = [record.reason or record.status.value for record in records] or ["none was begun"]
                raise OnelipError(f"none of {self.config.trials} trials succeeded; the first: {reasons[0]}")
            metrics = {name: best.config[name] for name in BOUNDS} | {GOAL: best.metrics[GOAL]}
            seconds = sum(record.seconds for record in records)
            metrics |= {"trials": len(records), "run": best.name}
            run.update(status=RunStatus.FINISHED, metrics=metrics, seconds=seconds)

    def estimated_seconds(self, study: Path) -> float:
        """Seconds to start a process: the trials are jobs of their own."""
        return _SECONDS


def _point_of(record: RunRecord) -> SearchResult:
    result = view(record).result
    assert isinstance(result, SearchResult)
    return result


def _trial_records(job: SearchJob, study: Path) -> list[RunRecord]:
    found = (trial.record(study) for trial in job.needs)
    return [record for record in found if record is not None]


def best_trial(job: SearchJob, study: Path) -> RunRecord | None:
    """The record of the best trial so far."""
    trained = [one for one in _trial_records(job, study) if _score(one) is not None]
    return max(trained, key=lambda record: record.metrics[GOAL], default=None)


def trial_rows(job: SearchJob, study: Path) -> list[dict[str, Any]]:
    """Point, state and value of each trial, as plain values."""
    rows: list[dict[str, Any]] = []
    for trial in job.needs:
        row = {"number": trial.number, "state": state_of(trial, study).status.value, "value": None}
        row |= {**point(job.config, trial.number), "run": _run_name(trial.spec)}
        record = trial.record(study)
        if record is not None and record.status is RunStatus.FINISHED:
            row |= {"state": "complete", "value": _score(record)}
        elif record is not None and record.reason:
            diverged = "diverged: " if record.status is RunStatus.DIVERGED else ""
            row |= {"state": "fail", "reason": f"{diverged}{record.reason}"}
        rows.append(row)
    return rows


def _score(record: RunRecord) -> float | None:
    """An accuracy that a trial can be chosen by: one that is not finite is a legal record, and never the best."""
    score = record.metrics.get(GOAL)
    is_share = isinstance(score, float) and 0 <= score <= 1
    return score if is_share and record.status is RunStatus.FINISHED else None
