"""Jobs that train a network to the end of its budget, certify it on the test set and look at its layers."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from onelip.bench.data import Splits, evaluation_batches
from onelip.bench.runs import NetworkSpec, Run, RunRecord, RunSpec, RunStatus, run_name
from onelip.bench.study.job_base import RUNS, Job, JobFailed, JobOptions, JobState, JobStatus, state_of_record
from onelip.bench.study.known_records import known_record
from onelip.bench.study.search_job import SearchJob
from onelip.bench.study.training_time import estimated_training_seconds, part_trained
from onelip.bench.training import TrainOptions, train
from onelip.bench.training.evaluation import proven_metrics
from onelip.bench.training.loop import KIND
from onelip.certification.diagnostics import diagnose
from onelip.errors import one_line

EVALUATION_FAILURE = "evaluation_failure"
"""Metric of a trained run that could not be certified: why."""

_FIGURES = ("test_accuracy", "test_certified_accuracy_36", "epochs")
"""What tables show of a run that is done."""
_DIAGNOSED_IMAGES = 32  # as in the paper
_POWER_ITERATIONS = 20
_START_SECONDS, _SECONDS_PER_TEST_IMAGE = 6.0, 0.004  # by experience, XS on two cores


@dataclass(frozen=True)
class TrainJob(Job):
    """One final training: `spec`, with the learning rate and weight decay that `search` finds, if there is one.

    Where the budget and seed are those of the trials, the winning trial has the same name and is this run already: it
    is certified, and not trained again.
    """

    spec: RunSpec
    search: SearchJob | None = None
    device: str = "cpu"

    kind = "train"

    def make_name(self) -> str:
        """By what is known before the search."""
        searched = None if self.search is None else self.search.name
        words = {"network": self.spec.network, "budget": self.spec.budget, "seed": self.spec.seed}
        return run_name("job", {**words, "train": self.spec, "search": searched})

    @property
    def network(self) -> NetworkSpec:
        """What is trained."""
        return self.spec.network

    @property
    def details(self) -> dict[str, Any]:
        """Budget and seed."""
        spec = self.spec
        return {"budget": spec.budget, "epochs": spec.epochs, "batch_size": spec.batch_size, "seed": spec.seed}

    @property
    def needs(self) -> tuple[Job, ...]:
        """The search."""
        return () if self.search is None else (self.search,)

    def resolved(self, study: Path) -> RunSpec | None:
        """The run with what the search has found; None before it has."""
        if self.search is None:
            return self.spec
        winner = self.search.winner(study)
        return None if winner is None else _with_winner(self.spec, **winner)

    def folder(self, study: Path) -> Path | None:
        """Where the run is; None before the end of the search."""
        spec = self.resolved(study)
        return None if spec is None else study / RUNS / _run_name(spec)

    def recorded(self, study: Path) -> JobState:
        """Done when trained, certified and diagnosed."""
        folder = self.folder(study)
        if folder is None:
            return JobState(JobStatus.PENDING)
        state = state_of_record(folder, _result)
        if state.status is not JobStatus.DONE:
            return state
        record = known_record(folder)
        assert record is not None
        metrics = record.metrics
        if "diagnostics" in metrics:
            odd = [name for name in _FIGURES if not isinstance(metrics.get(name), (int, float))]
            return JobState(JobStatus.FAILED, f"{', '.join(odd)} in its record is no number") if odd else state
        if EVALUATION_FAILURE in metrics:
            reason = f"trained, but not certified: {metrics[EVALUATION_FAILURE]}"
            return JobState(JobStatus.FAILED, reason, "", state.seconds, is_final=False)
        return JobState(JobStatus.PENDING, seconds=state.seconds)

    def run(self, study: Path, options: JobOptions) -> None:
        """Train, certify, diagnose: what of it is not done yet."""
        spec = self.resolved(study)
        if spec is None:
            raise JobFailed(f"{self.label} needs the result of {', '.join(need.name for need in self.needs)}")
        record = train(
            spec,
            study / RUNS,
            TrainOptions(
                device=self.device,
                checkpoint_seconds=options.checkpoint_seconds,
                stop_requested=options.stop_requested,
                on_finished=_certify,
                job=self.name,
            ),
        )
        if record.status is not RunStatus.FINISHED:
            raise JobFailed(f"{record.status.value}: {record.reason}")

    def estimated_seconds(self, study: Path) -> float | None:
        """Training, unless a trial of the search will be the run, and certification."""
        training = 0.0 if self._is_a_trial() else estimated_training_seconds(self.spec, study)
        images = self.network.data.test_size
        return None if training is None else training + _START_SECONDS + _SECONDS_PER_TEST_IMAGE * images

    def part_done(self, study: Path) -> float | None:
        """From the log of the run."""
        folder = self.folder(study)
        return None if folder is None else part_trained(folder)

    def _is_a_trial(self) -> bool:
        """Whether only learning rate and weight decay tell it from the trials of its search."""
        if self.search is None:
            return False
        neutral = {"lr": None, "weight_decay": 0.0}
        return dataclasses.replace(self.spec, **neutral) == dataclasses.replace(self.search.config.base, **neutral)


@functools.lru_cache(4096)
def _with_winner(spec: RunSpec, lr: float, weight_decay: float) -> RunSpec:
    return dataclasses.replace(spec, lr=lr, weight_decay=weight_decay)


@functools.lru_cache(4096)
def _run_name(spec: RunSpec) -> str:
    return run_name(KIND, spec)


def _certify(run: Run, model: nn.Module, splits: Splits) -> None:
    """Proven accuracies on the test set, and variances, norms and gradients by layer, in one write: both or none."""
    if "diagnostics" in run.record.metrics:
        return
    try:
        proven = proven_metrics(model, splits.test, "test", progress=False)
        images, labels = next(iter(evaluation_batches(splits.test, _DIAGNOSED_IMAGES)))
        layers = diagnose(model, images, labels, iterations=_POWER_ITERATIONS).as_records()
    except Exception as error:
        run.update(metrics=run.record.metrics | {EVALUATION_FAILURE: one_line(error)})
        raise
    kept = {name: value for name, value in run.record.metrics.items() if name != EVALUATION_FAILURE}
    run.update(metrics=kept | proven | {"diagnostics": layers})


def _result(record: RunRecord) -> str:
    accuracy, certified = (record.metrics.get(f"test_{name}") for name in ("accuracy", "certified_accuracy_36"))
    if accuracy is None or certified is None:
        return ""
    return f"accuracy {100 * accuracy:.1f} %, certified {100 * certified:.1f} %"
