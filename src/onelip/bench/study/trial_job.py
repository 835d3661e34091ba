"""Jobs that train one point of a search for learning rate and weight decay.

The point is that of Optuna's sampler for the search's seed and the trial's number (`search.points`): whoever does the
job, and however often it is begun again, draws the same one, and no two trials share one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.bench.runs import NetworkSpec, RunRecord, RunSpec, RunStatus, run_name
from onelip.bench.search.points import point
from onelip.bench.search.searcher import GOAL, SearchConfig, trial_config
from onelip.bench.study.job_base import RUNS, Job, JobFailed, JobOptions, JobState, JobStatus, state_of_record
from onelip.bench.study.training_time import estimated_training_seconds, part_trained
from onelip.bench.training import TrainOptions, train
from onelip.bench.training.loop import KIND


@dataclass(frozen=True)
class TrialJob(Job):
    """One trial. A point that diverges is a result of the search like any other: the worst."""

    search: SearchConfig
    number: int
    device: str = "cpu"

    kind = "trial"

    def make_name(self) -> str:
        """By the search and the number, not by the point, which nobody else has to compute."""
        base = self.search.base
        return run_name(
            "trial",
            {"network": base.network, "budget": base.budget, "search": self.search.name, "number": self.number},
        )

    @property
    def network(self) -> NetworkSpec:
        """What is trained."""
        return self.search.base.network

    @property
    def details(self) -> dict[str, Any]:
        """Budget and number."""
        base = self.search.base
        return {"budget": base.budget, "epochs": base.epochs, "batch_size": base.batch_size, "trial": self.number}

    @functools.cached_property
    def spec(self) -> RunSpec:
        """The run."""
        return trial_config(self.search, point(self.search, self.number))

    @functools.cached_property
    def run_name(self) -> str:
        """Name of the run."""
        return run_name(KIND, self.spec)

    def folder(self, study: Path) -> Path:
        """Where the run is."""
        return study / RUNS / self.run_name

    def recorded(self, study: Path) -> JobState:
        """Done when trained to the end, or to where it diverged or was given up."""
        state = state_of_record(self.folder(study), _result)
        if state.status is JobStatus.FAILED and state.is_final:
            return JobState(JobStatus.DONE, None, state.reason or "", state.seconds)
        return state

    def run(self, study: Path, options: JobOptions) -> None:
        """Train."""
        record = train(
            self.spec,
            study / RUNS,
            TrainOptions(
                device=self.device,
                checkpoint_seconds=options.checkpoint_seconds,
                stop_requested=options.stop_requested,
                job=self.name,
            ),
        )
        if record.status is RunStatus.FAILED:
            raise JobFailed(str(record.reason))

    def estimated_seconds(self, study: Path) -> float | None:
        """A trial is not certified."""
        return estimated_training_seconds(self.search.base, study)

    def part_done(self, study: Path) -> float | None:
        """From the log of the run."""
        return part_trained(self.folder(study))


def _result(record: RunRecord) -> str:
    certified = record.metrics.get(GOAL)
    return "" if certified is None else f"validation certified {100 * certified:.1f} %"
