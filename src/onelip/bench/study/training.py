"""Jobs that train a network to the end of its budget, certify it on the test set and look at its layers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onelip.bench.data import evaluation_batches, load, make_splits
from onelip.bench.runs import RECORD_FILE, NetworkSpec, RunRecord, RunSpec, RunStatus, read_record, run_name, start_run
from onelip.bench.study.jobs import RUNS, Circumstances, Job, JobFailed, JobState, JobStatus, state_of_record
from onelip.bench.study.measuring import seconds_per_epoch
from onelip.bench.training import TrainOptions, train
from onelip.bench.training.evaluation import evaluate_run, read_spec
from onelip.bench.training.loop import KIND, model_path
from onelip.certification.diagnostics import diagnose
from onelip.checkpoints import load_model
from onelip.errors import one_line

if TYPE_CHECKING:
    from onelip.bench.study.searching import SearchJob

EVALUATION_FAILURE = "evaluation_failure"
"""Metric of a trained run that could not be certified: why."""

_DIAGNOSED_IMAGES = 32  # as in the paper
_POWER_ITERATIONS = 20
_START_SECONDS, _SECONDS_PER_TEST_IMAGE = 6.0, 0.004  # by experience, XS on two cores


@dataclass(frozen=True)
class TrainJob(Job):
    """One final training: `config`, with the learning rate and weight decay that `search` finds, if there is one."""

    config: RunSpec
    search: SearchJob | None = None

    kind = "train"

    def make_name(self) -> str:
        """By what is known before the search."""
        searched = None if self.search is None else self.search.name
        words = {"network": self.config.network, "budget": self.config.budget, "seed": self.config.seed}
        return run_name("job", {**words, "train": self.config, "search": searched})

    @property
    def network(self) -> NetworkSpec:
        """What is trained."""
        return self.config.network

    @property
    def facts(self) -> dict[str, Any]:
        """How it is trained."""
        return {name: getattr(self.config, name) for name in ("budget", "epochs", "batch_size", "seed")}

    @property
    def needs(self) -> tuple[Job, ...]:
        """The search."""
        return () if self.search is None else (self.search,)

    def resolved(self, study: Path) -> RunSpec | None:
        """The configuration with what the search has found; None before it has."""
        if self.search is None:
            return self.config
        winner = self.search.winner(study)
        return None if winner is None else dataclasses.replace(self.config, **winner)

    def folder(self, config: RunSpec, study: Path) -> Path:
        """Where the run is. A trial that was trained with just this configuration is the run: no need for another."""
        name = run_name(KIND, config)
        if self.search is not None and (study / self.search.trials / name / RECORD_FILE).exists():
            return study / self.search.trials / name
        return study / RUNS / name

    def recorded(self, study: Path) -> JobState:
        """Done when trained, certified and diagnosed."""
        config = self.resolved(study)
        if config is None:
            return JobState(JobStatus.PENDING)
        folder = self.folder(config, study)
        state = state_of_record(folder, _result)
        if state.status is not JobStatus.DONE:
            return state
        metrics = read_record(folder).metrics
        if "diagnostics" in metrics:
            return state
        if EVALUATION_FAILURE in metrics:
            reason = f"trained, but not certified: {metrics[EVALUATION_FAILURE]}"
            return JobState(JobStatus.FAILED, reason, "", state.seconds, state.updated_at, is_final=False)
        return JobState(JobStatus.PENDING, seconds=state.seconds)

    def run(self, study: Path, how: Circumstances) -> None:
        """Train, certify, diagnose: what of it is not done yet."""
        config = self.resolved(study)
        assert config is not None, "its search has ended"
        folder = self.folder(config, study)

        def say(fraction: float, metrics: Any) -> None:
            how.say(f"{100 * fraction:.0f} % of the training" if fraction < 1 else "certifying")

        options = TrainOptions(how.device, how.checkpoint_seconds, job=self.name, on_validation=say)
        record = train(config, folder.parent, options)
        if record.status is not RunStatus.FINISHED:
            raise JobFailed(f"{record.status.value}: {record.reason}")
        try:
            if "test_accuracy" not in record.metrics:
                record = evaluate_run(folder, device=how.device, progress=False)
            layers = _layers(record, folder, how.device)
        except Exception as error:
            # Half an evaluation is none: results whose bounds could not be looked at are not shown, but made again.
            _set_metrics(record, folder, {EVALUATION_FAILURE: one_line(error)}, without="test_")
            raise
        _set_metrics(record, folder, {"diagnostics": layers}, without=EVALUATION_FAILURE)

    def estimated_seconds(self, study: Path) -> float | None:
        """Training, unless a trial of the search will be the run, and certification."""
        training = 0.0 if self._is_a_trial() else estimated_training_seconds(self.config, study)
        images = self.config.network.data.test_size
        return None if training is None else training + _START_SECONDS + _SECONDS_PER_TEST_IMAGE * images

    def _is_a_trial(self) -> bool:
        """Whether only learning rate and weight decay tell it from the trials of its search."""
        if self.search is None:
            return False
        neutral = {"lr": None, "weight_decay": 0.0}
        return dataclasses.replace(self.config, **neutral) == dataclasses.replace(self.search.config.base, **neutral)


def estimated_training_seconds(config: RunSpec, study: Path) -> float | None:
    """The budget, or what so many epochs take if the study has measured it."""
    if config.epochs is None:
        return config.budget_seconds
    epoch = seconds_per_epoch(study, config.network, config.settings.batch_size)
    return None if epoch is None else config.epochs * epoch


def _layers(record: RunRecord, folder: Path, device: str) -> list[dict[str, Any]]:
    """Variances, norms and gradients by layer, on the first test images."""
    config = read_spec(record, folder)
    model = load_model(model_path(folder)).to(device).eval()
    splits = make_splits(load(config.network.dataset, device), config.validation_fraction, config.validation_seed)
    images, labels = next(iter(evaluation_batches(splits.test, _DIAGNOSED_IMAGES)))
    return diagnose(model, images, labels, iterations=_POWER_ITERATIONS).as_records()


def _set_metrics(record: RunRecord, folder: Path, metrics: dict[str, Any], *, without: str) -> None:
    """Add to the record of a finished run and remove what begins so."""
    with start_run(folder.parent, KIND, record.config) as run:
        kept = {name: value for name, value in run.record.metrics.items() if not name.startswith(without)}
        run.update(metrics=kept | metrics)


def _result(record: RunRecord) -> str:
    accuracy, certified = (record.metrics.get(f"test_{name}") for name in ("accuracy", "certified_accuracy_36"))
    if accuracy is None or certified is None:
        return ""
    return f"accuracy {100 * accuracy:.1f} %, certified {100 * certified:.1f} %"
