"""One worker: takes jobs one after the other until none is left that it could do.

Several workers, on one machine or on many that share the folder, may do this at once: a job is done by whoever has
its lock, and the lock ends with its process.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import torch

from onelip.bench.runs.lock import RunLock
from onelip.bench.study.jobs import Circumstances, Job, JobState, JobStatus, lock_folder, state_of
from onelip.errors import InvalidInputError, OnelipError, one_line

_POLL_SECONDS = 1.0


class Observer(Protocol):
    """Is told what happens."""

    def started(self, job: Job) -> None:
        """A job begins or is continued."""

    def ended(self, job: Job, state: JobState) -> None:
        """A job is done or has failed."""


class Worker:
    """Works on the jobs of a plan. A job that fails is not tried again by this session, but by the next."""

    def __init__(self, jobs: Sequence[Job], study: Path, how: Circumstances, observer: Observer) -> None:
        self.jobs, self.study, self.how, self.observer = jobs, study, how, observer
        self.outcomes: dict[str, JobState] = {}
        self._since = datetime.now(UTC).isoformat(timespec="milliseconds")

    def work(self) -> dict[str, JobState]:
        """Until nothing is left to do here; returns the states of all jobs by name."""
        while True:
            if self._do_one():
                continue
            if not self._may_get_ready():
                return {job.name: self.state(job) for job in self.jobs}
            time.sleep(_POLL_SECONDS)

    def state(self, job: Job) -> JobState:
        """What this session knows; failures of needed jobs included."""
        if job.name in self.outcomes:
            return self.outcomes[job.name]
        state = state_of(job, self.study)
        if state.status is JobStatus.FAILED and not state.is_final and state.updated_at < self._since:
            state = JobState(JobStatus.PENDING)  # of an earlier session: it may go well now
        if state.status is JobStatus.PENDING:
            failed = [need for need in job.needs if self.state(need).status is JobStatus.FAILED]
            if failed:
                return JobState(JobStatus.FAILED, f"not run: {failed[0].label} has failed")
        if state.status in (JobStatus.DONE, JobStatus.FAILED):
            self.outcomes[job.name] = state
        return state

    def _is_ready(self, job: Job) -> bool:
        if self.state(job).status is not JobStatus.PENDING:
            return False
        return all(self.state(need).status is JobStatus.DONE for need in job.needs)

    def _may_get_ready(self) -> bool:
        """Whether some job waits for one that another process works on."""
        pending = [job for job in self.jobs if self.state(job).status is JobStatus.PENDING]
        return any(self.state(need).status is JobStatus.RUNNING for job in pending for need in job.needs)

    def _do_one(self) -> bool:
        return any(self._is_ready(job) and self._take(job) for job in self.jobs)

    def _take(self, job: Job) -> bool:
        """Do a job unless another process has it."""
        try:
            lock = RunLock(lock_folder(job, self.study))
        except InvalidInputError:  # another process was quicker
            return False
        try:
            if job.recorded(self.study).status is JobStatus.DONE:  # since we looked
                return True
            self.observer.started(job)
            state = self._run(job)
        finally:
            lock.release()
        self.outcomes[job.name] = state
        self.observer.ended(job, state)
        return True

    def _run(self, job: Job) -> JobState:
        start = time.monotonic()
        try:
            job.run(self.study, self.how)
            state = job.recorded(self.study)
            if state.status is JobStatus.DONE:
                return state
            reason = state.reason or "it ended without a result"
        except Exception as error:  # one job that fails does not stop the others
            reason = str(error) if isinstance(error, OnelipError) else one_line(error)
        finally:
            _free_memory()
        return JobState(JobStatus.FAILED, reason, seconds=time.monotonic() - start)


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
