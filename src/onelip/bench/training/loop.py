"""The training loop: start or continue a run, train until its plan ends, and record how it ended.

`kill -9` at any moment costs what was done since the last checkpoint. The same command continues there, with the
same batches, and for a run of epochs ends with the same weights, bit by bit, on one machine and thread count.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onelip.bench.data import Splits
from onelip.bench.records import (
    Run,
    RunOptions,
    RunRecord,
    RunSpec,
    RunStatus,
    load_checkpoint,
    read_record,
    run_name,
    start_run,
)
from onelip.bench.records.durations import TrainingClock
from onelip.bench.records.machine import device_name
from onelip.bench.records.new_networks import own_arguments
from onelip.bench.records.resume_file import CHECKPOINT_FILE
from onelip.bench.training.distributed import Ranks, joined_ranks
from onelip.bench.training.journal import Journal, ProgressDisplay
from onelip.bench.training.plans import EpochPlan, Plan, StepPlan, TimePlan
from onelip.bench.training.resolve import resolve
from onelip.bench.training.trainer import DivergedError, Trainer, check_run, load_splits
from onelip.checkpoints import load_model, save_model
from onelip.errors import InvalidInputError, one_line

MODEL_FILE = "model.safetensors"
KIND = "train"
_STEPS_PER_CHECK_ON_GPU = 20  # looking at the loss makes a GPU wait


OnFinished = Callable[[Run, nn.Module, Splits], None]


@dataclass(frozen=True)
class TrainOptions:
    """How to run, which does not change what is run.

    Args:
        device: by default a GPU where there is one.
        checkpoint_seconds: wall-clock time between checkpoints.
        progress: whether to show progress on stderr.
        job: name of the study's job that the run belongs to, for its record.
        on_finished: called with a finished run, its network and the data, before the run is let go; results that
            belong to the run are put into its record here, without opening it or reading the data a second time.
        stop_requested: asked every few steps; once it says yes, a checkpoint is written and the run is left as
            interrupted, to be continued by the same command.
    """

    device: str | None = None
    checkpoint_seconds: float = 60.0
    progress: bool = False
    job: str | None = None
    on_finished: OnFinished | None = None
    stop_requested: Callable[[], bool] = lambda: False


def train(config: RunOptions, runs_dir: Path, options: TrainOptions | None = None) -> RunRecord:
    """Train the network of this configuration, or continue, or return the record if it has ended already.

    The status of the returned record says how it ended: finished or diverged.
    Under `torchrun` all processes call this, with `runs_dir` on a file system that they share.
    """
    config, options = resolve(config), options or TrainOptions()
    check_run(config, options.device)
    with joined_ranks(options.device) as ranks:
        return _train(config, runs_dir, options, ranks)


def _train(config: RunSpec, runs_dir: Path, options: TrainOptions, ranks: Ranks) -> RunRecord:
    with contextlib.ExitStack() as stack:
        run: Run | None = None
        if ranks.rank == 0:
            device = device_name(str(ranks.device), ranks.world_size)
            run = stack.enter_context(start_run(runs_dir, KIND, config, job=options.job, device=device))
        folder = runs_dir / run_name(KIND, config)
        trained: Trainer | None = None
        if ranks.from_first(float(run is not None and run.record.status is RunStatus.RUNNING)):
            training = _Training(config, folder, run, ranks, options)
            training.run_to_end()
            trained = training.trainer
        if run is not None and options.on_finished is not None and run.record.status is RunStatus.FINISHED:
            if trained is not None:
                options.on_finished(run, trained.result.eval(), trained.splits)
            else:  # an earlier session has ended the training
                model = trained_network(folder, run.record, allow=(config.network.model,)).to(ranks.device).eval()
                options.on_finished(run, model, load_splits(config, ranks.device))
        return read_record(folder) if run is None else run.record


class LeftEarly(BaseException):
    """A run was asked to stop, has written a checkpoint, and waits for the same command to continue it.

    Like Ctrl-C it is no `Exception`: nothing has failed, and no handler of failures may take it for one.
    """


class _Training:
    """One session of one run; `run` is None in all processes but the first."""

    def __init__(self, config: RunSpec, folder: Path, run: Run | None, ranks: Ranks, options: TrainOptions) -> None:
        self.config, self.run, self.ranks, self.options = config, run, ranks, options
        self.started = self.saved = time.monotonic()
        self.earlier_seconds = 0.0 if run is None else run.record.seconds
        self.trainer = Trainer(config, ranks)
        self.checkpoint_step: int | None = None
        checkpoint = load_checkpoint(folder)
        meta: dict[str, Any] = {} if checkpoint is None else checkpoint.meta
        self.clock = TrainingClock(
            meta.get("train_seconds", 0.0),
            synchronise=lambda: torch.cuda.synchronize(ranks.device) if ranks.device.type == "cuda" else None,
            agree=ranks.from_first,
            **({"now": time.process_time} if config.clock == "cores" else {}),
        )
        # Of the time that passed, what all threads computed, and in how much the first one had a processor.
        ways: dict[str, dict[str, Any]] = {"core_seconds": {"now": time.process_time}, "wall_seconds": {}}
        if ranks.device.type == "cpu":  # beside a GPU it waits
            ways["thread_seconds"] = {"now": time.thread_time}
        others = {name: TrainingClock(meta.get(name, 0.0), **how) for name, how in ways.items()}
        self.clocks = {"train_seconds": self.clock, **others}
        self.plan: Plan
        epochs, steps = config.epochs or 0, len(self.trainer.stream)
        if config.budget_seconds is not None:
            self.plan = TimePlan(config.budget_seconds, self.clock)
        elif config.schedule_epochs is not None:
            self.plan = EpochPlan(epochs, steps, config.schedule_epochs)
        else:
            self.plan = StepPlan(epochs * steps)
        # Where the last entry of the log was made: step, and training time for the throughput since.
        self.validated: tuple[int, float] = tuple(meta.get("validated", (0, 0.0)))
        if checkpoint is not None:
            try:
                self.plan.load_state_dict(meta["plan"])
                self.trainer.restore(checkpoint.tensors, self.plan.steps)
                self.checkpoint_step = self.plan.steps
            except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
                path = folder / CHECKPOINT_FILE
                raise InvalidInputError(f"{path}: not of this run ({one_line(error):.200}); delete it") from error
        self.journal = None if run is None else Journal(run.folder, self.validated[0])
        self.progress = ProgressDisplay(config.network.label, enabled=options.progress and run is not None)

    def run_to_end(self) -> None:
        """Train until the plan is done, and set the final status of the record."""
        try:
            with self.progress:
                self._train()
            self.trainer.check_weights(self.plan.steps)
        except DivergedError as error:
            kept = "" if self.checkpoint_step is None else f"; {CHECKPOINT_FILE} is that of step {self.checkpoint_step}"
            self._end(RunStatus.DIVERGED, f"{error}{kept}")
        else:
            digest = None
            if self.run is not None:
                network, own = self.config.network, {}
                if network.is_factory:
                    own = {"factory": network.model, "arguments": own_arguments(network)}
                digest = save_model(self.trainer.result, self.run.folder / MODEL_FILE, **own)
            self._end(RunStatus.FINISHED, None, model_sha256=digest)

    def _train(self) -> None:
        while True:
            at_epoch_end = self.plan.steps % len(self.trainer.stream) == 0
            if (at_epoch_end or self.plan.finished) and self.plan.steps != self.validated[0]:
                self._validate()
            if self.plan.finished:
                return
            with contextlib.ExitStack() as stack:
                for clock in self.clocks.values():
                    stack.enter_context(clock.running())
                self._train_epoch()

    def _train_epoch(self) -> None:
        """The rest of the current epoch, or less if the plan ends."""
        for images, labels in self.trainer.stream:
            try:
                lr = self.trainer.step(images, labels, self.plan.fraction, self.plan.planned_steps)
            except Exception:
                self.trainer.check_weights(self.plan.steps)  # of which a layer may refuse those that are not finite
                raise
            self.plan.step_done()
            is_check = self.ranks.device.type != "cuda" or self.plan.steps % _STEPS_PER_CHECK_ON_GPU == 0
            if is_check:
                self.trainer.check_finite(self.plan.steps)
            self.progress.step(self.plan.fraction, lr)
            if self.run is not None and time.monotonic() - self.saved >= self.options.checkpoint_seconds:
                with contextlib.ExitStack() as stack:
                    for clock in self.clocks.values():
                        stack.enter_context(clock.paused())
                    self._save()
            if self.plan.finished:
                return
            if is_check and self.ranks.from_first(float(self.options.stop_requested())):
                if self.run is not None:
                    self._save()
                raise LeftEarly("asked to stop; the same command continues")

    def _validate(self) -> None:
        """Evaluate and log; only the first process does, the others wait for it in their next step."""
        self.trainer.check_finite(self.plan.steps)
        seconds = self.clock.seconds()
        steps, before = self.plan.steps - self.validated[0], self.validated[1]
        train_loss = self.trainer.take_loss()
        self.validated = (self.plan.steps, seconds)
        if self.run is None or self.journal is None:
            return
        scores = self.trainer.validate()
        metrics = {
            "train_loss": train_loss,
            **self._seconds(),
            "images_per_second": steps * self.config.batch_size / max(seconds - before, 1e-9),
            **({} if scores is None else scores.metrics("validation")),
        }
        position = {"step": self.plan.steps, "epoch": self.plan.steps / len(self.trainer.stream)}
        entry = position | {"fraction": self.plan.fraction, "lr": self.trainer.last_lr} | metrics
        self.journal.write(entry)
        self.progress.entry(entry)
        self._update(metrics={"steps": self.plan.steps, "epochs": position["epoch"], **metrics})

    def _seconds(self) -> dict[str, float]:
        return {name: clock.own_seconds() for name, clock in self.clocks.items()}

    def _save(self) -> None:
        """Write a checkpoint, unless the weights have gone: the last good one is kept then."""
        assert self.run is not None
        if self.trainer.broken_weight() is not None or not bool(torch.isfinite(self.trainer.loss_sum)):
            return
        meta = {"plan": self.plan.state_dict(), **self._seconds(), "validated": list(self.validated)}
        self.run.save_checkpoint(self.trainer.state(), meta)
        self._update()
        self.saved, self.checkpoint_step = time.monotonic(), self.plan.steps

    def _end(self, status: RunStatus, reason: str | None, **results: Any) -> None:
        if self.run is None:
            return
        self._update(status=status, reason=reason, **results)
        # The weights of a finished run are in the model file; those of one that diverged are in no other place.
        if status is not RunStatus.DIVERGED:
            (self.run.folder / CHECKPOINT_FILE).unlink(missing_ok=True)

    def _update(self, **changes: Any) -> None:
        assert self.run is not None
        self.run.update(seconds=self.earlier_seconds + time.monotonic() - self.started, **changes)


def trained_network(folder: Path, record: RunRecord, allow: Sequence[str] = ()) -> nn.Module:
    """The network of a finished run, on the CPU; weights that are not those of the record are refused.

    `allow` names the user's function, module:function, that may be imported to build it.
    """
    if record.status is not RunStatus.FINISHED or record.model_sha256 is None:
        raise InvalidInputError(f"{folder}: has no trained weights; only a finished training run has")
    if record.network.is_factory and record.network.model not in allow:
        raise InvalidInputError(
            f"{folder}: its network is built by {record.network.model}, and importing that runs code; "
            f"if you trust it, say so: --model {record.network.model}"
        )
    return load_model(folder / MODEL_FILE, sha256=record.model_sha256, allow=allow)
