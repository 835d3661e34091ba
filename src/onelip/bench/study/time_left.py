"""How far a study is: what is done, what runs, and when it will end."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onelip.bench.study.job_base import Job, JobState, JobStatus


@dataclass
class TimeLeft:
    """Counts and an estimate of the time that is left; fed by what an engine reports.

    Estimates are made before anything has run. What jobs of one sort really took, relative to their estimates, corrects
    those that are still to come.
    """

    jobs: Sequence[Job]
    study: Path
    workers: int = 1
    now: Callable[[], float] = time.monotonic
    states: dict[str, JobState] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.now()
        self.estimates = {job.name: job.estimated_seconds(self.study) for job in self.jobs}
        self._took: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def started(self, job: Job) -> None:
        """A job begins."""
        self.running[job.name] = self.now()
        if self.estimates.get(job.name) is None:  # a measurement made since may tell
            self.estimates[job.name] = job.estimated_seconds(self.study)

    def ended(self, job: Job, state: JobState) -> None:
        """A job ended."""
        start = self.running.pop(job.name, None)
        self.states[job.name] = state
        estimate = self.estimates.get(job.name)
        if start is not None and estimate and state.status is JobStatus.DONE:
            self._took[_sort(job)].append((self.now() - start, estimate))

    def count(self, status: JobStatus, kind: str | None = None) -> int:
        """Jobs with this status."""
        wanted = {job.name for job in self.jobs if kind in (None, job.kind)}
        return sum(state.status is status for name, state in self.states.items() if name in wanted)

    def expected(self, job: Job) -> float | None:
        """Corrected estimate of a whole job."""
        estimate = self.estimates.get(job.name)
        took = self._took[_sort(job)]
        if estimate is None or not took:
            return estimate
        return estimate * sum(actual for actual, _ in took) / sum(guess for _, guess in took)

    def seconds_left(self) -> tuple[float, bool]:
        """An estimate, and whether it is complete: jobs of which nothing is known are left out of it."""
        left, complete = 0.0, True
        for job in self.jobs:
            state = self.states.get(job.name)
            if state is not None and state.status in (JobStatus.DONE, JobStatus.FAILED):
                continue
            expected = self.expected(job)
            if expected is None:
                complete = False
            else:
                used = self.now() - self.running[job.name] if job.name in self.running else 0.0
                left += max(0.0, expected - used)
        return left / self.workers, complete


def _sort(job: Job) -> str:
    """Jobs whose estimates are wrong in the same way."""
    return str(job.details.get("quantity") or job.kind)


def short_duration(seconds: float) -> str:
    """For people: 45 s, 7 min 30 s, 3 h 20 min, 4 d 6 h."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    for size, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            whole, rest = divmod(round(seconds / small), size // small)
            return f"{whole} {name} {rest} {small_name}" if rest else f"{whole} {name}"
    raise AssertionError
