"""What an engine is, and a job's command as a process of its own: on this machine and in tasks of Ray and Slurm."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onelip.atomic_files import open_regular
from onelip.bench.records.machine import ENGINE_VARIABLE, HUGE_PAGES
from onelip.bench.study.attempts import OUTPUT_FILE, PARENT_VARIABLE
from onelip.bench.study.estimates import predicted_bytes
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

    def counting_processes(self) -> int:
        """Processes over which jobs that only count are spread now; 0 where each job has its own."""
        return 0

    @abstractmethod
    def start(self, job: Job, *others: Job) -> None:
        """Begin a job, or put it into the engine's queue; `others` follow it in the process of one that only counts."""

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

    def command(self, job: Job, *others: Job, threads: int | None = None) -> JobCommand:
        """The command of these jobs, with its engine's name and its share of the cores in the environment."""
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
            (*PROGRAM, "job", str(study), *(one.name for one in (job, *others)), *options),
            str(study / JOBS / job.name / OUTPUT_FILE),
            environment,
        )


_PARTS = 4
"""Most jobs that share a GPU."""

_CONTEXT_BYTES = 2**30
"""Of the CUDA context, scratch space and fragmentation, for each process on a GPU."""


def gpu_share(job: Job, card_gib: int | None = None, per_training: int = 1) -> float:
    """GPUs of a job: none if it only counts or reads, a part if it is small and its result does not depend on time.

    A time, and a training under a time budget, has its GPU for itself: shared, it would measure its neighbours. Without
    the size of the cards nothing is shared. Trainings that are split over `per_training` GPUs have all of them.
    """
    if job.device != "cuda" or not job.uses_device:
        return 0.0
    if job.trains and per_training > 1:
        return float(per_training)
    if job.runs_alone or job.details.get("budget") is not None or card_gib is None:
        return 1.0
    part = ((predicted_bytes(job) or 0) + _CONTEXT_BYTES) / (card_gib * 2**30)
    return min(1.0, math.ceil(_PARTS * part) / _PARTS)


PATIENCE_SECONDS = 30.0
"""Time for a training to finish its step and write a checkpoint."""

SECONDS_PER_LOOK = 0.2


def look_until(look: Callable[[], list[Ended]], seconds: float, pause: float = SECONDS_PER_LOOK) -> list[Ended]:
    """What has ended, as soon as something has, or after so many seconds; each look has its pause."""
    deadline = time.monotonic() + seconds
    while not (ended := look()) and time.monotonic() < deadline:
        time.sleep(pause)
    return ended


def start_process(command: JobCommand) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, so that Ctrl-C on the terminal reaches only the process that started it."""
    output = Path(command.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW) as log:
        return subprocess.Popen(
            command.arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **command.environment, PARENT_VARIABLE: str(os.getpid())},
            start_new_session=True,
        )


def run_process(command: JobCommand) -> int:
    """Start it and wait; if this process is told to stop, so is the other, and what it saves is waited for.

    Ray tells it by a KeyboardInterrupt without a signal, which reaches Python between two looks, not while it waits.
    """
    hear_interrupts()
    process = start_process(command)
    try:
        while (code := process.poll()) is None:
            time.sleep(SECONDS_PER_LOOK)
        return code
    except BaseException:
        ask_to_stop([process])
        raise


def hear_interrupts() -> None:
    """Make a KeyboardInterrupt possible where SIGINT is ignored: Ray that was started by `nohup` hands that on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ask_to_stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGTERM, which makes a training write a checkpoint, and SIGKILL for whoever does not end in time."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    try:
        for process in processes:
            process.wait(PATIENCE_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        for process in processes:
            process.kill()
            process.wait()
