"""Do or continue jobs of a study.

```
onelip jobs study
onelip job study "train aol"
```

Engines start it, and you can by hand. Several jobs are done one after the other. A job may be killed and started again
at any moment, on any machine that sees the folder: its record says what is done. SIGTERM, SIGUSR1 and SIGUSR2 make a
training write a checkpoint and leave; so does the end of the engine that started it.

Exit codes, of several jobs the last that is not 0: 0 done, 1 failed, 3 another process works on it, 70 one of its
processes was killed, 74 a file could not be written, 75 left, to be continued.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from onelip.bench.cli.options import AT_LEAST_1, DURATION
from onelip.bench.records.durations import parse_duration
from onelip.bench.records.machine import ENGINE_VARIABLE
from onelip.bench.study.attempts import PARENT_VARIABLE, attempt_all
from onelip.bench.study.job_base import Job, JobOptions, JobStatus, state_of
from onelip.bench.study.study_file import check_trusted, planned_jobs
from onelip.errors import InvalidInputError
from onelip.factories import search_working_folder


@dataclass(frozen=True, kw_only=True)
class Command:
    study: Path = field(kw_only=False)
    """Folder of the study."""
    names: tuple[str, ...] = field(kw_only=False)
    """Names of jobs, or the beginnings of some: `onelip jobs STUDY --json` has them all."""
    model: str | None = None
    """module:function of the study's own model, which the job may import: that runs its code."""
    checkpoint_every: Annotated[str, DURATION] = "30s"
    """Time between checkpoints of a training; a kill costs at most that much work."""
    processes: Annotated[int, AT_LEAST_1] = 1
    """Processes that train together, one per GPU, started as torchrun does; other jobs are always one."""

    def run(self) -> int:
        stop = threading.Event()
        engine = int(os.environ.get(PARENT_VARIABLE, "0"))

        def stop_requested() -> bool:
            # Left behind by its engine, it would compute beside the jobs of the next one, which does not know of it.
            return stop.is_set() or (engine != 0 and os.getppid() != engine)

        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, lambda *_: stop.set())
        if not self.names:
            raise InvalidInputError(f"name a job of {self.study}; `onelip jobs {self.study} --json` has them all")
        search_working_folder()
        jobs = planned_jobs(self.study, self.names)
        check_trusted([job.network.model for job in jobs], [self.model or ""])
        if ENGINE_VARIABLE not in os.environ:  # an engine's driver has looked already
            for job in jobs:
                self._check_needs(job)
        return attempt_all(
            jobs, self.study, JobOptions(parse_duration(self.checkpoint_every), stop_requested, self.processes)
        )

    def _check_needs(self, job: Job) -> None:
        """Refuse a job whose needs have not ended: a search would choose among the trials that it finds."""
        if state_of(job, self.study).status is JobStatus.DONE:
            return
        for need in job.needs:
            status = state_of(need, self.study).status
            if status in (JobStatus.PENDING, JobStatus.RUNNING):
                raise InvalidInputError(f"{job.name} needs {need.name}, which is {status.value}: do that one first")
