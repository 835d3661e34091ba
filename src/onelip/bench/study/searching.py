"""Jobs that search learning rate and weight decay of a network; the trials are those of `onelip search`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.bench.runs import NetworkSpec, RunRecord, RunStatus, read_record, start_run
from onelip.bench.search.searcher import GOAL, SearchConfig, best_trial, search
from onelip.bench.study.jobs import RUNS, SEARCHES, Circumstances, Job, JobState, JobStatus, state_of_record
from onelip.bench.study.training import estimated_training_seconds
from onelip.bench.training import TrainOptions
from onelip.errors import OnelipError

KIND = "search"


@dataclass(frozen=True)
class SearchJob(Job):
    """One search. Its own record holds the point that won, so that nothing else has to read Optuna's journal."""

    config: SearchConfig

    kind = "search"

    def make_name(self) -> str:
        """Name of the record, which is also that of the folder with the trials."""
        return self.config.name

    @property
    def network(self) -> NetworkSpec:
        """What is trained."""
        return self.config.base.network

    @property
    def facts(self) -> dict[str, Any]:
        """How it is searched."""
        names = ("budget", "epochs", "batch_size")
        return {name: getattr(self.config.base, name) for name in names} | {"trials": self.config.trials}

    @property
    def trials(self) -> Path:
        """Folder of the trials' runs, inside the study."""
        return Path(SEARCHES) / self.config.name / RUNS

    def recorded(self, study: Path) -> JobState:
        """State of the record."""
        return state_of_record(study / RUNS / self.name, _result)

    def winner(self, study: Path) -> dict[str, float] | None:
        """Learning rate and weight decay of the best trial; None before the end of the search."""
        if self.recorded(study).status is not JobStatus.DONE:
            return None
        metrics = read_record(study / RUNS / self.name).metrics
        return {name: metrics[name] for name in ("lr", "weight_decay")}

    def run(self, study: Path, how: Circumstances) -> None:
        """Make the trials that are missing and record the best."""
        with start_run(study / RUNS, KIND, self.config.identity, job=self.name) as run:
            if run.record.status is RunStatus.FINISHED:
                return
            start, before = time.monotonic(), run.record.seconds
            options = TrainOptions(device=how.device, checkpoint_seconds=how.checkpoint_seconds, job=self.name)
            found = search(
                self.config,
                study / SEARCHES,
                options,
                on_trial=lambda trial: how.say(f"trial {trial.number + 1} of {self.config.trials}"),
            )
            best = best_trial(found)
            if best is None:
                reasons = [str(trial.user_attrs.get("reason", trial.state.name.lower())) for trial in found.trials]
                raise OnelipError(f"none of {len(reasons)} trials succeeded; the first: {reasons[0]}")
            metrics = {**best.params, GOAL: best.value, "trials": len(found.trials), "run": best.user_attrs["run"]}
            seconds = before + time.monotonic() - start
            run.update(status=RunStatus.FINISHED, metrics=metrics, seconds=seconds)

    def estimated_seconds(self, study: Path) -> float | None:
        """Of all trials; they are not certified."""
        one = estimated_training_seconds(self.config.base, study)
        return None if one is None else self.config.trials * one


def _result(record: RunRecord) -> str:
    metrics = record.metrics
    return f"lr {metrics['lr']:.2g}, weight decay {metrics['weight_decay']:.2g}"
