"""Processes on this machine: one per GPU, or as many as asked for on a CPU."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from onelip.bench.engines.engine_base import (
    Ended,
    Engine,
    ask_to_stop,
    gpu_share,
    look_until,
    start_process,
)
from onelip.bench.measurement.memory import available_memory
from onelip.bench.records.machine import usable_cores
from onelip.bench.study.estimates import training_bytes
from onelip.bench.study.job_base import Job

_SECONDS_PER_LOOK = 0.05


@dataclass(frozen=True, eq=False)
class _Running:
    """Jobs of one process, the process and the GPUs that it sees."""

    jobs: tuple[Job, ...]
    process: subprocess.Popen[bytes]
    places: Counter[str]


class LocalEngine(Engine):
    """`workers` processes at once, or fewer if their trainings need more memory than there is.

    A job that has to run alone waits until its device is free, and keeps it.

    On a CPU the device is the machine: a job that runs alone has all cores, others share them evenly. Of GPUs each
    process sees one, as cuda:0, and a training as many as it is split over.
    """

    name = "local"

    def __init__(self, study: Path, workers: int = 1, **shared: Any) -> None:
        super().__init__(study, **shared)
        self.workers = workers
        self._memory = available_memory()
        self._running: list[_Running] = []
        gpus = visible_gpus()
        places = (gpus[index % len(gpus)] for index in range(workers * self.gpus_per_training) if gpus)
        self._places = Counter(places)  # more than one on a GPU, where more workers are asked for than there are

    def has_room(self, job: Job) -> bool:
        """A worker is free, and on a CPU nobody is disturbed or would disturb; counting takes a core, not a worker."""
        jobs = [job for one in self._running for job in one.jobs]
        if jobs and any(one.runs_alone and one.device == "cpu" for one in (job, *jobs)):
            return False
        if len(self._choose_places(job)) < self._gpus(job):
            return False
        if not any(one.uses_device for one in (job, *jobs)):
            return self.counting_processes() > 0
        if jobs and job.device == "cpu" and sum(map(self._bytes, (job, *jobs))) > self._memory:
            return False
        return len(self._running) < self.workers

    def counting_processes(self) -> int:
        """One on each core."""
        return max(self.workers, usable_cores()) - len(self._running)

    def start(self, job: Job, *others: Job) -> None:
        """Start a process."""
        threads = None
        if job.device == "cpu":
            shared = self.workers if job.uses_device else usable_cores()
            threads = usable_cores() if job.runs_alone else max(1, usable_cores() // shared)
        command = self.command(job, *others, threads=threads)
        if places := self._choose_places(job):
            command.environment["CUDA_VISIBLE_DEVICES"] = ",".join(places)
        self._running.append(_Running((job, *others), start_process(command), places))

    def _bytes(self, job: Job) -> int:
        """What a training takes, as far as the study knows."""
        return training_bytes(self.study, job.network, job.details.get("batch_size")) if job.trains else 0

    def _gpus(self, job: Job) -> int:
        """That a job takes for itself, where this machine has any."""
        return int(gpu_share(job, per_training=self.gpus_per_training)) if self._places else 0

    def _choose_places(self, job: Job) -> Counter[str]:
        """On as many GPUs as the job takes, the emptiest first; all of a GPU's for one that runs alone."""
        free_places = self._places.copy()
        for one in self._running:
            free_places -= one.places
        emptiest = free_places.most_common()
        if job.runs_alone:
            emptiest = [(gpu, free) for gpu, free in emptiest if free == self._places[gpu]]
        return Counter({gpu: free if job.runs_alone else 1 for gpu, free in emptiest[: self._gpus(job)]})

    @property
    def running(self) -> int:
        """Processes."""
        return len(self._running)

    def wait(self, seconds: float) -> list[Ended]:
        """Until a process ends."""
        return look_until(self._look, seconds, _SECONDS_PER_LOOK)

    def _look(self) -> list[Ended]:
        ended = [(one, code) for one in self._running if (code := one.process.poll()) is not None]
        for one, _ in ended:
            self._running.remove(one)
        # Of several jobs the code says nothing about each: those without a record are begun again, alone.
        return [Ended(job.name, code if len(one.jobs) == 1 else None) for one, code in ended for job in one.jobs]

    def stop(self) -> None:
        """Ask all processes to stop."""
        ask_to_stop([one.process for one in self._running])


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = given.split(",") if given else [str(index) for index in range(count)]
    return names if count else []
