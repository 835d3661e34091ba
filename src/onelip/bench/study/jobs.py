"""Jobs that measure a network, and jobs that train one to the end of its budget, certify it and look at its layers.

Records of measurements are those of `onelip measure`; those of trainings have the result on the test set.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from onelip.bench.data import Splits, evaluation_batches
from onelip.bench.measurement import Measurement, Rounds, run_measurement
from onelip.bench.measurement.memory import GIB
from onelip.bench.measurement.sources import source_stamp
from onelip.bench.records import NetworkSpec, Run, RunRecord, RunSpec, run_name, view
from onelip.bench.records.views import MacsResult, MemoryResult, TimeResult, TooLarge, TrainResult
from onelip.bench.study.estimates import measurements
from onelip.bench.study.job_base import RUNS, Job, JobOptions, JobState, JobStatus
from onelip.bench.study.search import SearchJob, TrainingJob, with_point
from onelip.bench.training.evaluation import proven_metrics
from onelip.certification.diagnostics import diagnose
from onelip.errors import InvalidInputError, OnelipError, one_line

SHORT_ROUNDS = Rounds(warm_up=1, least=6, most=12, tolerance=0.05, seconds=4.0, inference_batch=256)
"""A rough ratio in seconds, for a first look. Six rounds are the fewest that give a 95 % interval of a median."""

_SECONDS = {"time": 60.0, "memory": 5.0, "macs": 5.0}
_SHORT_SECONDS = 8.0

EVALUATION_FAILURE = "evaluation_failure"
"""Metric of a trained run that could not be certified: why."""

_FIGURES = ("test_accuracy", "test_certified_accuracy_36", "epochs")
"""What tables show of a run that is done."""
_DIAGNOSED_IMAGES = 32  # as in the paper
_POWER_ITERATIONS = 20
_START_SECONDS, _SECONDS_PER_TEST_IMAGE = 6.0, 0.004  # by experience, XS on two cores


@dataclass(frozen=True)
class MeasureJob(Job):
    """One quantity of one network. The record, and not the job, names the hardware: that of whoever does the job."""

    measurement: Measurement
    device: str = "cpu"

    kind = "measure"

    def make_name(self) -> str:
        """By the measurement and the code that is measured, so that a change of it makes a new job."""
        return run_name("job", self._identity)

    @property
    def _identity(self) -> dict[str, Any]:
        measurement = self.measurement
        return {**asdict(measurement), "network": measurement.network, "fingerprint": measurement.code}

    @property
    def entry(self) -> dict[str, Any]:
        """The measurement with the fingerprint of its code, and the files that had it."""
        return {"spec": self._identity, "stamp": source_stamp()}

    @property
    def network(self) -> NetworkSpec:
        """What is measured."""
        return self.measurement.network

    @property
    def details(self) -> dict[str, Any]:
        """Quantity and batch."""
        return {"quantity": self.measurement.quantity, "batch_size": self.measurement.batch_size}

    @property
    def uses_device(self) -> bool:
        """Predictions do not."""
        return not self.measurement.is_prediction

    def recorded(self, study: Path) -> JobState:
        """State of the record that was made for this job; of several, by different hardware, one with a result.

        Which of them is the newest says nothing: clocks of different machines differ.
        """
        own = [self.state_from(record) for record in measurements(study, self.network) if record.job == self.name]
        done = [state for state in own if state.status is JobStatus.DONE]
        return (done or own or [JobState(JobStatus.PENDING)])[0]

    def run(self, study: Path, options: JobOptions) -> None:
        """Measure, unless there is a record of the same hardware."""
        run_measurement(self.measurement, study / RUNS, job=self.name)

    def estimated_seconds(self, study: Path) -> float:
        """By experience, XS on a CPU."""
        return _SECONDS[self.measurement.quantity] if self.measurement.rounds is None else _SHORT_SECONDS

    def result(self, record: RunRecord) -> str:
        """Ratios to the plain network, GiB or operations."""
        match view(record).result:
            case TooLarge() as result:
                return f"does not fit: needs {result.needed_bytes / GIB:.1f} GiB"
            case TimeResult() as result:
                training, inference = result.training.ratio.median, result.inference.ratio.median
                return f"training {training:.2f} x plain, inference {inference:.2f} x"
            case MemoryResult() as result:
                return f"training {result.training / GIB:.2f} GiB"
            case MacsResult() as result:
                return f"{result.training_step / 1e9:.3g} GMAC per step"
        raise InvalidInputError(f"{record.kind} is no measurement of a study")


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
