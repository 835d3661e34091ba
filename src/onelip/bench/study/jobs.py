"""What a job is: something with a name that leaves a record, and whose state is that record and nothing else.

    <study>/study.json     the plan
    <study>/runs/          records of measurements, searches and trainings, as the single commands write them
    <study>/searches/      Optuna's journals and the trials
    <study>/.locks/        one lock per job, held by the process that works on it

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

from onelip.bench.runs import RECORD_FILE, NetworkSpec, RunRecord, RunStatus, read_record
from onelip.bench.runs.lock import is_locked
from onelip.errors import InvalidInputError, OnelipError

RUNS = "runs"
SEARCHES = "searches"
_LOCKS = ".locks"

JobKind = Literal["measure", "search", "train"]


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
    updated_at: str = ""
    is_final: bool = True
    """False for a failure that another attempt might not have: an error, unlike a training that diverged."""


class JobFailed(OnelipError):  # noqa: N818 - what happened, not what is wrong with the caller
    """The job ended without a result, and its record says why."""


@dataclass(frozen=True)
class Circumstances:
    """How jobs are run, which does not change what they are: device, time between checkpoints, news for the view."""

    device: str = "cpu"
    checkpoint_seconds: float = 30.0
    say: Callable[[str], None] = lambda news: None


class Job(ABC):
    """One measurement, search or training. Two jobs with the same name are the same job."""

    kind: JobKind

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
    def facts(self) -> dict[str, Any]:
        """Budget, batch size and so on, as plain values: for tables and for study.json."""

    @property
    def needs(self) -> tuple[Job, ...]:
        """Jobs whose results this one uses."""
        return ()

    @abstractmethod
    def recorded(self, study: Path) -> JobState:
        """What the records say."""

    @abstractmethod
    def run(self, study: Path, how: Circumstances) -> None:
        """Do it, or continue; an exception is a failure."""

    @abstractmethod
    def estimated_seconds(self, study: Path) -> float | None:
        """A rough estimate of the whole job, None if nothing is known."""

    @property
    def label(self) -> str:
        """For people."""
        facts = self.facts
        words = [facts.get("quantity"), self.network.label, budget_word(facts)]
        if facts.get("seed") is not None and self.kind == "train":
            words.append(f"seed {facts['seed']}")
        return " ".join([self.kind, *(str(word) for word in words if word)])


def budget_word(facts: dict[str, Any]) -> str:
    """30m, or 4 epochs; nothing for a measurement."""
    epochs = facts.get("epochs")
    return f"{epochs} epochs" if epochs is not None else facts.get("budget") or ""


def lock_folder(job: Job, study: Path) -> Path:
    """Where the lock of a job is."""
    return study / _LOCKS / job.name


def state_of(job: Job, study: Path) -> JobState:
    """Running if some process works on it, else what the records say."""
    recorded = job.recorded(study)
    if recorded.status is not JobStatus.DONE and is_locked(lock_folder(job, study)):
        return JobState(JobStatus.RUNNING)
    return recorded


def state_of_record(folder: Path, result: Callable[[RunRecord], str]) -> JobState:
    """State of a job that is one record; `result` says in a few words what a finished one has found."""
    if not (folder / RECORD_FILE).exists():
        return JobState(JobStatus.PENDING)
    try:
        record = read_record(folder)
    except InvalidInputError as error:
        return JobState(JobStatus.FAILED, str(error), is_final=False)
    if record.status is RunStatus.FINISHED:
        return JobState(JobStatus.DONE, None, result(record), record.seconds, record.updated_at)
    if record.status in (RunStatus.RUNNING, RunStatus.INTERRUPTED):
        return JobState(JobStatus.PENDING, seconds=record.seconds)
    reason = record.reason or record.status.value
    if record.status is not RunStatus.FAILED:
        reason = f"{record.status.value}: {reason}"
    is_final = record.status is not RunStatus.FAILED
    return JobState(JobStatus.FAILED, reason, "", record.seconds, record.updated_at, is_final)
