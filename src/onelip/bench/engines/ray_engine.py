"""Tasks of a Ray cluster, each of which starts a job's command on some node. Ray's Tune is not used.

Ray queues the tasks and places them by what they ask for; a task whose worker or node is lost is started again without
limit, and its job continues from its last checkpoint.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from onelip.bench.engines.engine_base import Ended, Engine, usable_cores
from onelip.bench.engines.process import run_process
from onelip.bench.engines.resources import gpu_share
from onelip.bench.study.job_base import Job
from onelip.bench.study.job_memory import predicted_bytes
from onelip.errors import InvalidInputError

_MEMORY_FACTOR = 1.2  # kernels use scratch space beside the predicted tensors


class RayEngine(Engine):
    """Jobs on a running cluster (`address`), or on one of `workers` at once that is started on this machine.

    Args:
        study: its folder, which all nodes see under the same path.
        address: of the cluster, "auto" for the one that this machine belongs to.
        workers: jobs at once on a cluster that is started here.
        cpus_per_job: cores that a job asks for; one that has to run alone on a CPU asks for a whole node.
        card_gib: memory of the GPUs; small jobs whose results do not depend on time then share one.
        checkpoint_every: time between checkpoints.
    """

    name = "ray"

    def __init__(
        self,
        study: Path,
        address: str | None = None,
        workers: int | None = None,
        cpus_per_job: int | None = None,
        card_gib: int | None = None,
        checkpoint_every: str = "30s",
    ) -> None:
        super().__init__(study, checkpoint_every)
        self._ray = _import_ray()
        self.cpus_per_job, self.card_gib = cpus_per_job or 1, card_gib
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "onelip"}
        if address is None:
            count = usable_cores() if workers is None else workers * self.cpus_per_job
            options |= {"num_cpus": count, "include_dashboard": False}
        else:
            options |= {"address": address}
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default; unset, Ray warns
        self._ray.init(**options)
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self._largest_cpus = int(max(node.get("CPU", 1) for node in nodes))
        self._largest_memory = int(max(node.get("memory", 0) for node in nodes))
        gpus, cpus = (sum(node.get(kind, 0) for node in nodes) for kind in ("GPU", "CPU"))
        self.workers = max(1, int(gpus or cpus // self.cpus_per_job))
        self._tasks: dict[Any, str] = {}

    def start(self, job: Job) -> None:
        """Queue a task."""
        gpus = gpu_share(job, self.card_gib)
        cpus = self._largest_cpus if job.runs_alone and job.device == "cpu" else self.cpus_per_job
        cpus = min(cpus, self._largest_cpus)
        command = self.command(job, cpus)
        task = self._ray.remote(run_process).options(
            name=job.name,
            num_cpus=cpus,
            num_gpus=gpus,
            memory=self._memory(job) if not gpus else None,
            max_retries=-1,
        )
        self._tasks[task.remote(command.arguments, command.output, command.environment)] = job.name

    def _memory(self, job: Job) -> int | None:
        """What a job on a CPU asks for; one that no node has room for says so itself, instead of waiting for ever."""
        needed = int(_MEMORY_FACTOR * (predicted_bytes(job) or 0))
        return needed if 0 < needed <= self._largest_memory else None

    @property
    def running(self) -> int:
        """Tasks that are queued or run."""
        return len(self._tasks)

    def wait(self, seconds: float) -> list[Ended]:
        """Until a task ends."""
        done, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        ended = []
        for task in done:
            try:
                code: int | None = self._ray.get(task)
            except self._ray.exceptions.RayError:  # its owner, and no longer Ray's retries, is to blame
                code = None
            ended.append(Ended(self._tasks.pop(task), code))
        return ended

    def stop(self) -> None:
        """Cancel all tasks; those that run stop their process, which saves a checkpoint."""
        for task in self._tasks:
            self._ray.cancel(task)
        if self._tasks:
            self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=60)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InvalidInputError('the engine ray needs the extra "ray": pip install "onelip[bench,ray]"') from error
    return ray
