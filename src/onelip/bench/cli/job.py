"""`onelip job`: do or continue one job of a study."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from onelip.bench.runs.durations import parse_duration
from onelip.bench.runs.machine import ENGINE_VARIABLE
from onelip.bench.study.attempts import PARENT_VARIABLE, attempt
from onelip.bench.study.job_base import Job, JobOptions, JobStatus, state_of
from onelip.bench.study.planner import find_job, plan
from onelip.bench.study.study_file import check_trusted, stored_options
from onelip.errors import InvalidInputError
from onelip.factories import search_working_folder


@dataclass(frozen=True)
class DoOneJob:
    """Do or continue one job of a study: what every engine starts, and what you can start by hand.

    It may be killed and called again at any moment, on any machine that sees the folder: the record says what is done.

    SIGTERM, SIGUSR1 and SIGUSR2 make a training write a checkpoint and leave; so does the end of the engine's
    process that started it.

    Exit codes: 0 done, 1 failed, 3 another process works on it, 70 one of its processes was killed, 74 a file could
    not be written, 75 left, to be continued.
    """

    study: Annotated[Path, tyro.conf.Positional]
    """Folder of the study."""
    name: Annotated[str, tyro.conf.Positional]
    """Name of the job, or the beginning of one: `onelip jobs STUDY --json` has them all."""
    model: str | None = None
    """module:function of the study's own model, which the job may import: that runs its code."""
    checkpoint_every: str = "30s"
    """Time between checkpoints of a training; a kill costs at most that much work."""
    processes: int = 1
    """Processes that train together, one per GPU, started as torchrun does; other jobs are always one."""

    def run(self) -> int:
        """Do it."""
        if self.processes < 1:
            raise InvalidInputError(f"processes must be 1 or more, got {self.processes}")
        stop = threading.Event()
        engine = int(os.environ.get(PARENT_VARIABLE, "0"))

        def stop_requested() -> bool:
            # Left behind by its engine, it would compute beside the jobs of the next one, which does not know of it.
            return stop.is_set() or (engine != 0 and os.getppid() != engine)

        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, lambda *_: stop.set())
        options = stored_options(self.study)
        if not options:
            raise InvalidInputError(f"{self.study}: is not the folder of a study; `onelip compare` makes one")
        search_working_folder()
        job = find_job(plan(*options), self.name)
        check_trusted([job.network.model], [self.model or ""])
        if ENGINE_VARIABLE not in os.environ:  # an engine's driver has looked already
            self._check_needs(job)
        seconds = parse_duration(self.checkpoint_every)
        return attempt(job, self.study, JobOptions(seconds, stop_requested, self.processes))

    def _check_needs(self, job: Job) -> None:
        """Refuse a job whose needs have not ended: a search would choose among the trials that it finds."""
        if state_of(job, self.study).status is JobStatus.DONE:
            return
        for need in job.needs:
            status = state_of(need, self.study).status
            if status in (JobStatus.PENDING, JobStatus.RUNNING):
                raise InvalidInputError(f"{job.name} needs {need.name}, which is {status.value}: do that one first")


COMMAND = DoOneJob
