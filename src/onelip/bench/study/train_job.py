"""Jobs that train a network to the end of its budget, certify it on the test set and look at its layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from onelip.bench.data import Splits, evaluation_batches
from onelip.bench.records import Run, RunRecord, RunSpec, run_name, view
from onelip.bench.records.views import TrainResult
from onelip.bench.study.job_base import Job, JobOptions, JobState, JobStatus
from onelip.bench.study.search import SearchJob, TrainingJob, with_point
from onelip.bench.training.evaluation import proven_metrics
from onelip.certification.diagnostics import diagnose
from onelip.errors import OnelipError, one_line

EVALUATION_FAILURE = "evaluation_failure"
"""Metric of a trained run that could not be certified: why."""

_FIGURES = ("test_accuracy", "test_certified_accuracy_36", "epochs")
"""What tables show of a run that is done."""
_DIAGNOSED_IMAGES = 32  # as in the paper
_POWER_ITERATIONS = 20
_START_SECONDS, _SECONDS_PER_TEST_IMAGE = 6.0, 0.004  # by experience, XS on two cores


@dataclass(frozen=True)
class TrainJob(TrainingJob):
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
        words = {"network": self.network, "budget": self.spec.budget, "seed": self.spec.seed}
        return run_name("job", {**words, "train": self.spec, "search": self.entry["search"]})

    @property
    def details(self) -> dict[str, Any]:
        """The seed too."""
        return super().details | {"seed": self.spec.seed}

    @property
    def entry(self) -> dict[str, Any]:
        """The run, and the search that completes it."""
        return {"spec": self.spec, "search": None if self.search is None else self.search.name}

    @property
    def needs(self) -> tuple[Job, ...]:
        """The search."""
        return () if self.search is None else (self.search,)

    def resolved(self, study: Path) -> RunSpec | None:
        """The run with what the search has found; None before it has."""
        if self.search is None:
            return self.spec
        winner = self.search.winner(study)
        return None if winner is None else with_point(self.spec, **winner)

    def state_from(self, record: RunRecord) -> JobState:
        """Done when trained, certified and diagnosed."""
        state, metrics = super().state_from(record), record.metrics
        if state.status is not JobStatus.DONE:
            return state
        if "diagnostics" in metrics:
            odd = [name for name in _FIGURES if metrics.get(name) is None]
            return JobState(JobStatus.FAILED, f"its record has no {', '.join(odd)}") if odd else state
        if EVALUATION_FAILURE in metrics:
            reason = f"trained, but not certified: {metrics[EVALUATION_FAILURE]}"
            return JobState(JobStatus.FAILED, reason, "", state.seconds, is_final=False)
        return JobState(JobStatus.PENDING, seconds=state.seconds)

    def result(self, record: RunRecord) -> str:
        """Accuracies on the test set."""
        result = view(record).result
        assert isinstance(result, TrainResult)
        accuracy, certified = result.test_accuracy, result.test_certified_accuracy_36
        if accuracy is None or certified is None:
            return ""
        return f"accuracy {100 * accuracy:.1f} %, certified {100 * certified:.1f} %"

    def run(self, study: Path, options: JobOptions) -> None:
        """Train, certify, diagnose: what of it is not done yet."""
        spec = self.resolved(study)
        if spec is None:
            raise OnelipError(f"{self.label} needs the result of {', '.join(need.name for need in self.needs)}")
        self.train(spec, study, options, _certify)

    def estimated_seconds(self, study: Path) -> float | None:
        """Training, unless a trial of the search will be the run, and certification."""
        # A trial of the search is this run where only learning rate and weight decay tell them apart.
        neutral, trial = with_point(self.spec, 1.0, 0.0), self.search and with_point(self.search.spec, 1.0, 0.0)
        training = 0.0 if neutral == trial else super().estimated_seconds(study)
        images = self.network.data.test_size
        return None if training is None else training + _START_SECONDS + _SECONDS_PER_TEST_IMAGE * images


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
