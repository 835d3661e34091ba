"""Jobs that choose the best of the trials of a search; the record holds the point that won."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.bench.runs import NetworkSpec, RunRecord, RunStatus, start_run
from onelip.bench.search.searcher import GOAL, SearchConfig
from onelip.bench.study.job_base import RUNS, Job, JobOptions, JobState, JobStatus, state_of_record
from onelip.bench.study.known_records import known_record
from onelip.bench.study.trial_job import TrialJob
from onelip.errors import OnelipError

KIND = "search"
_SECONDS = 3.0  # mostly those of starting a process


@dataclass(frozen=True)
class SearchJob(Job):
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
    def network(self) -> NetworkSpec:
        """What is trained."""
        return self.config.base.network

    @property
    def details(self) -> dict[str, Any]:
        """Budget and number of the trials."""
        base = self.config.base
        return {
            "budget": base.budget,
            "epochs": base.epochs,
            "batch_size": base.batch_size,
            "trials": self.config.trials,
        }

    @property
    def needs(self) -> tuple[TrialJob, ...]:
        """The trials."""
        return self._trials

    @functools.cached_property
    def _trials(self) -> tuple[TrialJob, ...]:
        return tuple(TrialJob(self.config, number, self.device) for number in range(self.config.trials))

    @property
    def bears_failed_needs(self) -> bool:
        """One trial that runs out of memory does not spoil a search."""
        return True

    @property
    def uses_device(self) -> bool:
        """It reads records."""
        return False

    def folder(self, study: Path) -> Path:
        """Where the choice is recorded."""
        return study / RUNS / self.name

    def recorded(self, study: Path) -> JobState:
        """State of the record."""
        return state_of_record(self.folder(study), _result)

    def winner(self, study: Path) -> dict[str, float] | None:
        """Learning rate and weight decay of the best trial; None before the end of the search."""
        record = known_record(self.folder(study)) if self.recorded(study).status is JobStatus.DONE else None
        if record is None:
            return None
        return {name: record.metrics[name] for name in ("lr", "weight_decay")}

    def run(self, study: Path, options: JobOptions) -> None:
        """Choose and record."""
        with start_run(study / RUNS, KIND, self.config.identity, job=self.name) as run:
            if run.record.status is RunStatus.FINISHED:
                return
            found = [known_record(trial.folder(study)) for trial in self.needs]
            records = [record for record in found if record is not None]
            trained = [record for record in records if record.status is RunStatus.FINISHED and _is_score(record)]
            if not trained:
                reasons = [f"{record.reason or record.status.value}" for record in records] or ["none was begun"]
                raise OnelipError(f"none of {self.config.trials} trials succeeded; the first: {reasons[0]}")
            best = max(trained, key=lambda record: record.metrics[GOAL])
            metrics = {
                "lr": best.config["lr"],
                "weight_decay": best.config["weight_decay"],
                GOAL: best.metrics[GOAL],
                "trials": len(records),
                "run": best.name,
            }
            seconds = sum(record.seconds for record in records)
            run.update(status=RunStatus.FINISHED, metrics=metrics, seconds=seconds)

    def estimated_seconds(self, study: Path) -> float:
        """The trials are jobs of their own."""
        return _SECONDS


def _is_score(record: RunRecord) -> bool:
    """Whether a trial has an accuracy to be chosen by: one that is not finite is a legal record, and never the best."""
    score = record.metrics.get(GOAL)
    return isinstance(score, float) and 0 <= score <= 1


def _result(record: RunRecord) -> str:
    lr, weight_decay = (record.metrics[name] for name in ("lr", "weight_decay"))
    if not (0 < lr < math.inf and 0 <= weight_decay < math.inf):
        raise ValueError(f"lr {lr!r:.20}, weight decay {weight_decay!r:.20}")
    return f"lr {lr:.2g}, weight decay {weight_decay:.2g}"
