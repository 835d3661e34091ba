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
from onelip.bench.runs import NetworkSpec, RunRecord, RunStatus
from onelip.bench.study.known_records import known_record
from onelip.errors import InvalidInputError, OnelipError, one_line

RUNS = "runs"
JOBS = "jobs"

JobKind = Literal["measure", "trial", "search", "train"]


class JobStatus(enum.StrEnum):
    """How a job stands."""

    PENDING = "pending"
    """Not begun, or to be continued."""
    RUNNING = "running"
    """A process works on it."""
    DONE = "done"
    """Its record has the result."""
    FAILED = "failed"
    """It has no result; the reason says why."""


@dataclass(frozen=True)
class JobState:
    """Status with the reason of a failure or the result in a few words, from the record."""

    status: JobStatus
    reason: str | None = None
    result: str = ""
    seconds: float = 0.0
    is_final: bool = True
    """False for a failure that another attempt might not have: an error, unlike a training that diverged."""


class JobFailed(OnelipError):  # noqa: N818 - what happened, not what is wrong with the caller
    """The job ended without a result, and its record says why."""


@dataclass(frozen=True)
class JobOptions:
    """How a job is run, which does not change what it is.

    Args:
        checkpoint_seconds: time between checkpoints of a training.
        stop_requested: once it says yes, a training writes a checkpoint and is left.
        processes: that train together, one per GPU; other jobs are always one process.
    """

    checkpoint_seconds: float = 30.0
    stop_requested: Callable[[], bool] = lambda: False
    processes: int = 1


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
        """What the job is beside its network, as plain values: budget, seed and so on; for tables and study.json."""

    @property
    def needs(self) -> tuple[Job, ...]:
        """Jobs whose results this one uses."""
        return ()

    @property
    def bears_failed_needs(self) -> bool:
        """Whether it can be done as soon as all jobs that it needs have ended, in whatever way."""
        return False

    @property
    def runs_alone(self) -> bool:
        """Whether its result is wrong if anything else computes on the same device: true for times."""
        return False

    @property
    def uses_device(self) -> bool:
        """Whether it computes on its device at all; counting and choosing do not."""
        return True

    @property
    def trains(self) -> bool:
        """Whether it is a training, which several GPUs can share."""
        return self.kind in ("trial", "train")

    @abstractmethod
    def folder(self, study: Path) -> Path | None:
        """Where its record is; None as long as that depends on other jobs or on the machine that does it."""

    @abstractmethod
    def recorded(self, study: Path) -> JobState:
        """What the records say."""

    @abstractmethod
    def run(self, study: Path, options: JobOptions) -> None:
        """Do it, or continue; an exception is a failure."""

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
        words = [details.get("quantity"), self.network.label, budget_word(details)]
        if details.get("trial") is not None:
            words.append(f"trial {details['trial']}")
        if self.kind == "train":
            words.append(f"seed {details['seed']}")
        return " ".join([self.kind, *(str(word) for word in words if word)])


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


def state_of_record(folder: Path, result: Callable[[RunRecord], str]) -> JobState:
    """State of a job that is one record; `result` says in a few words what a finished one has found."""
    try:
        record = known_record(folder)
    except InvalidInputError as error:
        return JobState(JobStatus.FAILED, str(error), is_final=False)
    return JobState(JobStatus.PENDING) if record is None else state_from(record, result)


def state_from(record: RunRecord, result: Callable[[RunRecord], str]) -> JobState:
    """State of a job with this record."""
    if record.status is RunStatus.FINISHED:
        try:
            return JobState(JobStatus.DONE, None, result(record), record.seconds)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:  # written by somebody else
            return JobState(JobStatus.FAILED, f"the result in its record cannot be read ({one_line(error):.100})")
    if record.status in (RunStatus.RUNNING, RunStatus.INTERRUPTED):
        return JobState(JobStatus.PENDING, seconds=record.seconds)
    reason = record.reason or record.status.value
    if record.status is not RunStatus.FAILED:
        reason = f"{record.status.value}: {reason}"
    return JobState(JobStatus.FAILED, reason, seconds=record.seconds, is_final=record.status is not RunStatus.FAILED)
