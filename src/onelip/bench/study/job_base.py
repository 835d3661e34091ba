"""What a job is: one measurement, trial, search or training, with a name, whose state is its record and nothing else.

    <study>/study.json     the plan: options and jobs (study_file.py)
    <study>/runs/          one record per measurement, trial, search and training, as the single commands write them
    <study>/jobs/          one folder per job that was begun: its lock, its attempts, what it printed (attempts.py)

A job that was killed at any moment is found without a lock and without a final record, and is continued.
"""

from __future__ import annotations

import enum
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onelip.bench.file_lock import is_locked
from onelip.bench.records import NetworkSpec, RunRecord, RunStatus
from onelip.bench.records.store import known_record
from onelip.errors import InvalidInputError, one_line

RUNS = "runs"
JOBS = "jobs"

JobKind = Literal["measure", "trial", "search", "train"]


class JobStatus(enum.StrEnum):
    """How a job stands: not begun or to be continued, worked on, with a result in its record, or without one."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class JobState:
    """Status with the reason of a failure or the result in a few words, from the record."""

    status: JobStatus
    reason: str | None = None
    result: str = ""
    seconds: float = 0.0
    is_final: bool = True
    """False for a failure that another attempt might not have: an error, unlike a training that diverged."""


@dataclass(frozen=True)
class JobOptions:
    """How a job is run, which does not change what it is.

    Args:
        checkpoint_seconds: time between checkpoints of a training.
        stop_requested: once it says yes, a training writes a checkpoint and is left.
        processes: that train together, one per GPU; other jobs are always one process.
        progress: whether trials show it on stderr.
    """

    checkpoint_seconds: float = 30.0
    stop_requested: Callable[[], bool] = lambda: False
    processes: int = 1
    progress: bool = False


class Job(ABC):
    """One measurement, trial, search or training. Two jobs with the same name are the same job.

    `device` is cpu or cuda: the kind that the job computes on.
    """

    kind: JobKind
    device: str

    @functools.cached_property
    def name(self) -> str:
        """Unique and stable: a readable prefix and the hash of what determines the job."""
        return self.make_name()  # kept: a live view asks for all names twice a second

    @abstractmethod
    def make_name(self) -> str:
        """Compute the name."""

    @property
    @abstractmethod
    def network(self) -> NetworkSpec:
        """What is measured or trained."""

    @property
    @abstractmethod
    def details(self) -> dict[str, Any]:
        """What the job is beside its network, as plain values: budget, seed and so on; for tables."""

    @property
    @abstractmethod
    def entry(self) -> dict[str, Any]:
        """What `study.json` holds of it, from which `study_file.planned_jobs` makes it again."""

    @property
    def needs(self) -> tuple[Job, ...]:
        """Jobs whose results this one uses."""
        return ()

    @property
    def bears_failed_needs(self) -> bool:
        """Whether it can be done as soon as all jobs that it needs have ended: one trial does not spoil a search."""
        return self.kind == "search"

    @property
    def runs_alone(self) -> bool:
        """Whether its result is wrong if anything else computes on the same device: true for times."""
        return self.details.get("quantity") == "time"

    @property
    def uses_device(self) -> bool:
        """Whether it computes on its device at all; counting and choosing do not."""
        return self.kind != "search"

    @property
    def trains(self) -> bool:
        """Whether it is a training, which several GPUs can share."""
        return self.kind in ("trial", "train")

    def folder(self, study: Path) -> Path | None:
        """Where its record is; None as long as that depends on other jobs or on the machine that does it."""
        return None

    def record(self, study: Path) -> RunRecord | None:
        """What is in its folder; None if nothing is."""
        folder = self.folder(study)
        return None if folder is None else known_record(folder)

    def recorded(self, study: Path) -> JobState:
        """What the records say."""
        try:
            record = self.record(study)
        except InvalidInputError as error:
            return JobState(JobStatus.FAILED, str(error), is_final=False)
        return JobState(JobStatus.PENDING) if record is None else self.state_from(record)

    def state_from(self, record: RunRecord) -> JobState:
        """State of the job with this record."""
        if record.status is RunStatus.FINISHED:
            try:
                return JobState(JobStatus.DONE, None, self.result(record), record.seconds)
            except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:  # by somebody else
                return JobState(JobStatus.FAILED, f"the result in its record cannot be read ({one_line(error):.100})")
        if record.status in (RunStatus.RUNNING, RunStatus.INTERRUPTED):
            return JobState(JobStatus.PENDING, seconds=record.seconds)
        failed = record.status is RunStatus.FAILED
        reason = record.reason if failed else f"{record.status.value}: {record.reason}"
        return JobState(JobStatus.FAILED, reason, seconds=record.seconds, is_final=not failed)

    def result(self, record: RunRecord) -> str:
        """What a finished record has found, in a few words."""
        return ""

    @abstractmethod
    def run(self, study: Path, options: JobOptions) -> None:
        """Do it, or continue; an exception is a failure, and so is a record that says so."""

    @abstractmethod
    def estimated_seconds(self, study: Path) -> float | None:
        """A rough estimate of the whole job, None if nothing is known."""

    def part_done(self, study: Path) -> float | None:
        """How much of it is done, from 0 to 1; None where nothing is known."""
        return None

    @property
    def label(self) -> str:
        """For people."""
        details = self.details
        words = [self.kind, details.get("quantity"), self.network.label, budget_word(details)]
        words += [f"{name} {details[name]}" for name in ("trial", "seed") if name in details]
        return " ".join(filter(None, words))


def budget_word(details: dict[str, Any]) -> str:
    """30m, or 4 epochs; nothing for a measurement."""
    epochs = details.get("epochs")
    if epochs is None:
        return details.get("budget") or ""
    return f"{epochs} epoch{'s' if epochs != 1 else ''}"


def job_folder(job: Job, study: Path) -> Path:
    """Where lock, attempts and output of a job are."""
    return study / JOBS / job.name


def state_of(job: Job, study: Path) -> JobState:
    """Running if some process works on it, else what the records say."""
    recorded = job.recorded(study)
    if recorded.status is not JobStatus.DONE and is_locked(job_folder(job, study)):
        return JobState(JobStatus.RUNNING)
    return recorded
