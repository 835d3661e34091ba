"""What an engine is, and the command that it starts for a job."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onelip.bench.runs.machine import ENGINE_VARIABLE, HUGE_PAGES
from onelip.bench.study.attempts import OUTPUT_FILE
from onelip.bench.study.job_base import JOBS, Job

PROGRAM: Sequence[str] = (sys.executable, "-m", "onelip")
"""How the command line is called in a process of its own."""


@dataclass(frozen=True)
class Ended:
    """A job's process has ended: with this exit code (negative: by a signal), or None where the engine has lost it.

    `reason` is why the engine could not even start it.
    """

    name: str
    code: int | None
    reason: str | None = None


@dataclass(frozen=True)
class JobCommand:
    """One call of `onelip job`, as plain values that can be sent to another machine."""

    arguments: tuple[str, ...]
    output: str
    environment: dict[str, str] = field(default_factory=dict)
    """What the engine adds to that of the machine it runs on."""


class Engine(ABC):
    """Starts jobs and tells how they ended.

    The same job may be started again after it has ended. An engine that loses a process says so; it never decides
    about the state of a job, which is in its record.
    """

    name: str
    workers: int = 1
    """Jobs that run at once, as far as known: only for the estimate of the time that is left."""

    def __init__(self, study: Path, checkpoint_every: str = "30s", gpus_per_training: int = 1) -> None:
        self.study, self.checkpoint_every, self.gpus_per_training = study, checkpoint_every, gpus_per_training

    def has_room(self, job: Job) -> bool:
        """Whether the job could begin now. Engines that have a queue of their own always say yes."""
        return True

    @abstractmethod
    def start(self, job: Job) -> None:
        """Begin a job, or put it into the engine's queue."""

    @property
    @abstractmethod
    def running(self) -> int:
        """Jobs that were started and have not been returned by `wait`."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Ended]:
        """Jobs that have ended; waits for one, at most so long."""

    @abstractmethod
    def stop(self) -> None:
        """End all jobs, giving trainings the time to save a checkpoint."""

    def close(self) -> None:  # noqa: B027 - most engines have nothing to let go of
        """Let go of what the engine has opened."""

    def command(self, job: Job, threads: int | None = None) -> JobCommand:
        """The command of a job, with its engine's name and its share of the cores in the environment."""
        pages = os.environ.get("GLIBC_TUNABLES", HUGE_PAGES)
        environment = {ENGINE_VARIABLE: self.name, "GLIBC_TUNABLES": pages}
        processes = self.gpus_per_training if job.trains else 1
        share = None if threads is None else max(1, threads // processes)
        wanted = os.environ.get("OMP_NUM_THREADS") or share  # what the user has set is set everywhere
        if wanted is not None:
            environment["OMP_NUM_THREADS"] = str(wanted)
        study = self.study.resolve()
        # The study's owner has named the function to `onelip compare`; a file that names one is not enough.
        trusted = ("--model", job.network.model) if job.network.is_factory else ()
        options = ("--checkpoint-every", self.checkpoint_every, "--processes", str(processes), *trusted)
        return JobCommand(
            (*PROGRAM, "job", str(study), job.name, *options),
            str(study / JOBS / job.name / OUTPUT_FILE),
            environment,
        )


def usable_cores() -> int:
    """Cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
