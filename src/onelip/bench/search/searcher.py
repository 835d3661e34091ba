"""Hyper-parameter search: learning rate and weight decay by the validation certified accuracy at 36/255.

The paper's search is 16 random points, log-uniform in [1e-4, 1e-1] x [10^-5.5, 10^-3.5]. A study is one folder:

    <study>/journal.log      Optuna's journal: all trials, their points, values and reasons of failure
    <study>/runs/            one run per trial, as `onelip train` makes them

Several processes may work on one study at once. A trial's point is a function of the study's seed and the trial's
number, which the journal gives out once, so two workers never draw the same point, and a study that is killed and
started again tries the same points. Trials of killed workers are continued from their checkpoints.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

from onelip.atomic_files import WriteError, remove_temporaries
from onelip.bench.file_lock import LOCK_FILE, is_locked, lock_file
from onelip.bench.runs import RunSpec, RunStatus, run_name
from onelip.bench.search.optuna_journal import open_journal
from onelip.bench.search.samplers import NumberedSampler
from onelip.bench.training import StopTraining, TrainOptions, train
from onelip.bench.training.loop import KIND
from onelip.errors import InvalidInputError, OnelipError, one_line

SPACE = {
    "lr": FloatDistribution(1e-4, 1e-1, log=True),
    "weight_decay": FloatDistribution(10**-5.5, 10**-3.5, log=True),
}
GOAL = "validation_certified_accuracy_36"

# A trial reports at most once per per cent of its run. The rungs are at 11, 33 and 99 %.
_HALVING = {"min_resource": 11, "reduction_factor": 3, "min_early_stopping_rate": 0}


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """A study: what to train, how many points, how they are chosen."""

    base: RunSpec
    """The run of which learning rate and weight decay are searched."""
    trials: int = 16
    """Number of points."""
    sampler: Literal["random", "tpe"] = "random"
    """random: as in the paper; tpe: points near those that did well."""
    pruner: Literal["none", "halving"] = "none"
    """halving: successive halving, gives up the worse two thirds of the runs after 11 % and 33 % of the budget."""
    search_seed: int = 0
    """Chooses the points."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise InvalidInputError(f"trials must be 1 or more, got {self.trials}")
        if self.base.validation_fraction == 0:
            raise InvalidInputError("a search needs validation images: validation_fraction must be above 0")
        # Both are searched: whatever they are in the base must not give the study another name.
        neutral = dataclasses.replace(self.base, lr=None, weight_decay=0.0)
        object.__setattr__(self, "base", neutral)

    @property
    def name(self) -> str:
        """Name of the study's folder."""
        return run_name("search", self.identity)

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the study, as its record holds it."""
        return {"network": self.base.network, "budget": self.base.budget, "search": self}


def search(
    config: SearchConfig,
    studies_dir: Path,
    options: TrainOptions | None = None,
    on_trial: Callable[[FrozenTrial], None] = lambda trial: None,
) -> optuna.Study:
    """Work on a study until all its points are taken; returns it with the trials of all workers.

    Args:
        config: the study.
        studies_dir: where its folder is, or is made.
        options: for the training runs; their `on_validation` is replaced.
        on_trial: called after each trial of this worker.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InvalidInputError("search does not run under torchrun; start the same command once per GPU instead")
    folder = studies_dir / config.name
    study = open_study(config, studies_dir)
    for trial in _trials_to_do(study, config, folder):
        if _run_trial(trial, study, config, folder, options or TrainOptions()):
            on_trial(study.get_trials(deepcopy=False)[trial.number])
    return study


def open_study(config: SearchConfig, studies_dir: Path) -> optuna.Study:
    """The study with the trials so far, made if missing."""
    folder = studies_dir / config.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot write in {studies_dir}: {error.strerror}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    halving = config.pruner == "halving"
    with lock_file(folder / LOCK_FILE):  # Optuna's own check for an existing study is not atomic
        remove_temporaries(folder)
        return optuna.create_study(
            study_name=config.name,
            storage=open_journal(folder),
            sampler=NumberedSampler(config.sampler, config.search_seed),
            pruner=optuna.pruners.SuccessiveHalvingPruner(**_HALVING) if halving else optuna.pruners.NopPruner(),
            direction="maximize",
            load_if_exists=True,
        )


def best_trial(study: optuna.Study) -> FrozenTrial | None:
    """The complete trial with the highest validation certified accuracy, None while there is none."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return max(complete, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)


def trial_config(config: SearchConfig, point: Mapping[str, float]) -> RunSpec:
    """The training run of a point."""
    return dataclasses.replace(config.base, lr=point["lr"], weight_decay=point["weight_decay"])


def _trials_to_do(study: optuna.Study, config: SearchConfig, folder: Path) -> Iterator[Trial]:
    """First the trials that nobody works on any more, then new ones while there are points left."""
    for abandoned in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if not _is_being_run(abandoned, config, folder):
            yield Trial(study, abandoned._trial_id)  # Optuna has no public way to take up a running trial
    while True:
        with lock_file(folder / LOCK_FILE):
            if len(study.get_trials(deepcopy=False)) >= config.trials:
                return
            trial = study.ask(dict(SPACE))
        yield trial


def _is_being_run(trial: FrozenTrial, config: SearchConfig, folder: Path) -> bool:
    if set(trial.params) != set(SPACE):
        return False
    run_config = trial_config(config, trial.params)
    return is_locked(folder / "runs" / run_name(KIND, run_config))


def _run_trial(trial: Trial, study: optuna.Study, config: SearchConfig, folder: Path, options: TrainOptions) -> bool:
    """Train one point and tell the study; False if another worker has taken the trial meanwhile."""
    point = {name: trial.suggest_float(name, space.low, space.high, log=True) for name, space in SPACE.items()}
    run_config = trial_config(config, point)
    name = run_name(KIND, run_config)
    trial.set_user_attr("run", name)
    options = dataclasses.replace(options, on_validation=_reporter(trial, study))
    try:
        record = train(run_config, folder / "runs", options)
    except OnelipError:
        if is_locked(folder / "runs" / name):
            return False
        raise  # a full disk or missing data is not the fault of this point: the trial can be continued
    except RuntimeError as error:  # what torch raises: out of memory, a decomposition that does not converge
        _fail(trial, study, one_line(error))
        return True
    if record.status is RunStatus.FINISHED:
        study.tell(trial, record.metrics[GOAL], skip_if_finished=True)
    elif record.status is RunStatus.PRUNED:
        study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
    else:
        _fail(trial, study, f"{record.status.value}: {record.reason}")
    return True


def _fail(trial: Trial, study: optuna.Study, reason: str) -> None:
    trial.set_user_attr("reason", " ".join(reason.split()))
    study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)


def _reporter(trial: Trial, study: optuna.Study) -> Callable[[float, Mapping[str, float]], None]:
    def report(fraction: float, metrics: Mapping[str, float]) -> None:
        percent = int(100 * fraction)
        if percent >= 100:
            return  # the end of a run is told, not reported
        known = study.get_trials(deepcopy=False)[trial.number].intermediate_values
        if percent not in known:  # a continued run makes its last validations again
            trial.report(metrics[GOAL], percent)
        if trial.should_prune():
            raise StopTraining(f"others were better after {percent} % of the run")

    return report
