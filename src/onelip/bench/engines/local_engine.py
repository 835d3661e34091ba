"""Processes on this machine: one per GPU, or as many as asked for on a CPU."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from onelip.bench.engines.engine_base import Ended, Engine, usable_cores
from onelip.bench.engines.process import ask_to_stop, start_process
from onelip.bench.engines.resources import gpu_share
from onelip.bench.study.job_base import Job


@dataclass(frozen=True)
class _Running:
    """A job, its process and the GPUs that it sees."""

    job: Job
    process: subprocess.Popen[bytes]
    places: Counter[str]


class LocalEngine(Engine):
    """`workers` processes at once. A job that has to run alone waits until its device is free, and keeps it.

    On a CPU the device is the machine: a job that runs alone has all cores, others share them evenly. Of GPUs each
    process sees one, as cuda:0, and a training as many as it is split over.
    """

    name = "local"

    def __init__(
        self, study: Path, workers: int = 1, checkpoint_every: str = "30s", gpus_per_training: int = 1
    ) -> None:
        super().__init__(study, checkpoint_every, gpus_per_training)
        self.workers = workers
        most = max(workers, usable_cores())
        self._pool = concurrent.futures.ThreadPoolExecutor(most, "onelip-job")  # its threads wait for processes
        self._running: dict[concurrent.futures.Future[int], _Running] = {}
        gpus = visible_gpus()
        places = (gpus[index % len(gpus)] for index in range(workers * gpus_per_training) if gpus)
        self._places = Counter(places)  # more than one on a GPU, where more workers are asked for than there are

    def has_room(self, job: Job) -> bool:
        """A worker is free, and on a CPU nobody is disturbed or would disturb; counting takes a core, not a worker."""
        jobs = [one.job for one in self._running.values()]
        if jobs and any(one.runs_alone and one.device == "cpu" for one in (job, *jobs)):
            return False
        if len(self._choose_places(job)) < self._gpus(job):
            return False
        only_counts = not any(one.uses_device for one in (job, *jobs))
        return len(jobs) < (max(self.workers, usable_cores()) if only_counts else self.workers)

    def start(self, job: Job) -> None:
        """Start a process, and a thread that waits for it."""
        threads = None
        if job.device == "cpu":
            shared = self.workers if job.uses_device else usable_cores()
            threads = usable_cores() if job.runs_alone else max(1, usable_cores() // shared)
        command = self.command(job, threads)
        if places := self._choose_places(job):
            command.environment["CUDA_VISIBLE_DEVICES"] = ",".join(places)
        process = start_process(command)
        self._running[self._pool.submit(process.wait)] = _Running(job, process, places)

    def _gpus(self, job: Job) -> int:
        """That a job takes for itself, where this machine has any."""
        return int(gpu_share(job, per_training=self.gpus_per_training)) if self._places else 0

    def _choose_places(self, job: Job) -> Counter[str]:
        """On as many GPUs as the job takes, the emptiest first; all of a GPU's for one that runs alone."""
        free_places = self._places.copy()
        for one in self._running.values():
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
        done, _ = concurrent.futures.wait(self._running, seconds, concurrent.futures.FIRST_COMPLETED)
        return [Ended(self._running.pop(future).job.name, future.result()) for future in done]

    def stop(self) -> None:
        """Ask all processes to stop."""
        ask_to_stop([one.process for one in self._running.values()])

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = given.split(",") if given else [str(index) for index in range(count)]
    return names if count else []
