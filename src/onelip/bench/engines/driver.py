"""Which job is next: those whose needs are met, in the order of the plan, until none is left that could be done.

The driver has no state that matters: killed and started again, it finds all there is in the records. Several drivers
may work on one study; a job belongs to whoever has its lock, and the others wait for its record.
"""

from __future__ import annotations

import heapq
import math
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from onelip.bench.engines.engine_base import Ended, Engine
from onelip.bench.study.attempts import OUTPUT_FILE, ExitCode, last_output
from onelip.bench.study.job_base import JOBS, Job, JobState, JobStatus, state_of

MOST_DEATHS = 3
"""How often the process of a job may die by a signal before the job counts as failed; lost nodes do not count."""

_SECONDS_PER_LOOK = 1.0
_INTERRUPTED = 130


class Observer(Protocol):
    """Is told what happens."""

    def started(self, job: Job) -> None:
        """A job begins or is continued."""

    def ended(self, job: Job, state: JobState) -> None:
        """A job is done or has failed."""

    def know(self, job: Job, state: JobState) -> None:
        """A job was done, or has failed for good, in another session or by another driver."""


class Silent(Observer):
    """Looks away."""


class Driver:
    """Runs jobs on an engine. A job that fails is not tried again by this session, but by the next."""

    def __init__(self, jobs: Sequence[Job], study: Path, engine: Engine, observer: Observer) -> None:
        self.jobs, self.study, self.engine, self.observer = jobs, study, engine, observer
        self.states: dict[str, JobState] = {}
        self._order = {job.name: index for index, job in enumerate(jobs)}
        self._missing = {job.name: {need.name for need in job.needs} for job in jobs}
        self._dependents: dict[str, list[Job]] = {job.name: [] for job in jobs}
        for job in jobs:
            for need in self._missing[job.name]:
                self._dependents[need].append(job)
        self._ready: list[int] = []
        self._queued: set[str] = set()
        self._elsewhere: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._shared: set[str] = set()

    def run(self) -> dict[str, JobState]:
        """Until nothing is left to do; the states of all jobs by name, those that could not be run included."""
        try:
            for job in self.jobs:
                # One that cannot be run, because of another that was looked at before, has its state already.
                if job.name not in self.states and not self._is_taken(job) and not self._missing[job.name]:
                    self._queue(job)
            while True:
                self._start_ready()
                if not (self.engine.running or self._elsewhere):
                    return {job.name: self.states[job.name] for job in self.jobs}
                for ended in self.engine.wait(_SECONDS_PER_LOOK):
                    self._ended(self.jobs[self._order[ended.name]], ended)
                self._look_elsewhere()
        except KeyboardInterrupt:
            self.engine.stop()
            raise
        finally:
            self.engine.close()

    def _is_taken(self, job: Job) -> bool:
        """Whether an earlier session or another driver has done it or works on it; a failure may go well now."""
        self._elsewhere.discard(job.name)
        state = state_of(job, self.study)
        if state.status is JobStatus.RUNNING:
            self._elsewhere.add(job.name)
        elif state.status is JobStatus.DONE or (state.status is JobStatus.FAILED and state.is_final):
            self._settle(job, state, self.observer.know)
        else:
            return False
        return True

    def _queue(self, job: Job) -> None:
        """Put a job among those that can begin, once."""
        if not any(job.name in known for known in (self._queued, self._elsewhere, self.states)):
            self._queued.add(job.name)
            heapq.heappush(self._ready, self._order[job.name])

    def _start_ready(self) -> None:
        while self._ready:
            job = self.jobs[self._ready[0]]
            if job.name not in self.states and not self.engine.has_room(job):
                return
            heapq.heappop(self._ready)
            self._queued.discard(job.name)
            if job.name not in self.states and not self._is_taken(job):
                jobs = [job, *self._companions(job)]
                self.engine.start(*jobs)
                for one in jobs:
                    self.observer.started(one)

    def _companions(self, job: Job) -> list[Job]:
        """Jobs for the process of this one: to begin takes longer than to count. None is begun like this twice."""
        if not self._may_share(job) or (processes := self.engine.counting_processes()) < 1:
            return []
        ready = [self.jobs[index] for index in sorted(self._ready) if self._may_share(self.jobs[index])]
        chosen = [one for one in ready[: math.ceil((len(ready) + 1) / processes) - 1] if not self._is_taken(one)]
        self._ready = [index for index in self._ready if self.jobs[index] not in chosen]
        heapq.heapify(self._ready)
        self._queued.difference_update(one.name for one in chosen)
        self._shared.update(one.name for one in (job, *chosen))
        return chosen

    def _may_share(self, job: Job) -> bool:
        is_known = job.name in self._shared or job.name in self.states
        return job.kind == "measure" and not job.uses_device and not job.network.is_factory and not is_known

    def _ended(self, job: Job, ended: Ended) -> None:
        state = job.recorded(self.study)
        if state.status is JobStatus.DONE or ended.code == ExitCode.FAILED:
            if state.status is JobStatus.PENDING:
                reason = ended.reason or last_output(job, self.study) or "it ended without a result"
                state = JobState(JobStatus.FAILED, reason)
            self._settle(job, state, self.observer.ended)
        elif ended.code in (ExitCode.BUSY, ExitCode.DONE):  # done, and the file system will show the record later
            self._elsewhere.add(job.name)
        elif ended.code is None or ended.code in (ExitCode.LEFT, _INTERRUPTED):
            self._queue(job)
        elif self._deaths[job.name] + 1 < MOST_DEATHS:
            self._deaths[job.name] += 1
            self._queue(job)
        else:
            code = ended.code
            ending = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"code {code}"
            reason = f"its process ended {MOST_DEATHS} times with {ending}; see {JOBS}/{job.name}/{OUTPUT_FILE}"
            if ended.code == ExitCode.UNWRITTEN:
                reason = ended.reason or last_output(job, self.study) or reason
            state = JobState(JobStatus.FAILED, reason, is_final=False)
            self._settle(job, state, self.observer.ended)

    def _settle(self, job: Job, state: JobState, tell: Callable[[Job, JobState], None] | None = None) -> None:
        """Tell the state and keep it, and see which jobs have waited for it."""
        if tell is not None:
            tell(job, state)
        self.states[job.name] = state
        self._elsewhere.discard(job.name)
        for dependent in self._dependents[job.name]:
            if dependent.name in self.states:
                continue
            if state.status is JobStatus.FAILED and not dependent.bears_failed_needs:
                self._settle(dependent, JobState(JobStatus.FAILED, f"not run: {job.label} has failed"))
                continue
            missing = self._missing[dependent.name]
            missing.discard(job.name)
            if not missing:
                self._queue(dependent)

    def _look_elsewhere(self) -> None:
        """Jobs that other processes worked on: done, or left for whoever comes."""
        for job in [job for job in self.jobs if job.name in self._elsewhere]:
            state = state_of(job, self.study)
            if state.status is JobStatus.RUNNING:
                continue
            self._elsewhere.discard(job.name)
            if state.status is JobStatus.PENDING:
                self._queue(job)
            else:
                self._settle(job, state, self.observer.know)
