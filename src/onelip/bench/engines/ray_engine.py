"""Tasks of a Ray cluster, each of which starts a job's command on some node. Ray's Tune is not used.

Ray queues the tasks and places them by what they ask for; a task whose worker or node is lost is started again without
limit, and its job continues from its last checkpoint.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import Any

import onelip
from onelip.bench.engines.engine_base import Ended, Engine, gpu_share, look_until, run_process
from onelip.bench.study.attempts import ExitCode
from onelip.bench.study.estimates import predicted_bytes
from onelip.bench.study.job_base import Job
from onelip.bench.terminal import say
from onelip.errors import InvalidInputError, OnelipError, one_line

_TOO_SLOW, _TRIALS = "timed out during startup", 3  # Ray gives itself 30 seconds, which a busy machine may not keep
_MEMORY_FACTOR = 1.2  # kernels use scratch space beside the predicted tensors


class RayEngine(Engine):
    """Jobs on a running cluster, or on one that is started on this machine.

    Args:
        study: its folder, which all nodes see under the same path.
        address: of the cluster, "auto" for the one that this machine belongs to. Without it that one is used if there
            is one, and else one is started here, which ends with this process.
        workers: start a cluster here, for so many jobs at once.
        cpus_per_job: cores that a job asks for; one that has to run alone on a CPU asks for a whole node.
        card_gib: memory of the GPUs; small jobs whose results do not depend on time then share one.
        constraint: a resource of Ray that nodes must have, such as accelerator_type:A100.
        device: cpu or cuda, of the study.
        shared: arguments of `Engine`.
    """

    name = "ray"

    def __init__(
        self,
        study: Path,
        address: str | None = None,
        workers: int | None = None,
        cpus_per_job: int | None = None,
        card_gib: int | None = None,
        constraint: str | None = None,
        device: str = "cpu",
        **shared: Any,
    ) -> None:
        super().__init__(study, **shared)
        self._ray = _import_ray()
        self.cpus_per_job, self.card_gib = cpus_per_job or 1, card_gib
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "onelip"}
        if address is None and workers is not None:
            options |= {"address": "local", "num_cpus": workers * self.cpus_per_job, "include_dashboard": False}
        else:
            options |= {"address": cluster_address(self._ray, address)}
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default; unset, Ray warns
        for trial in range(_TRIALS):
            try:
                self._ray.init(**options)
                break
            except Exception as error:  # Ray raises whatever it has
                self._ray.shutdown()
                if _TOO_SLOW not in str(error) or trial + 1 == _TRIALS:
                    reason = f"{one_line(error):.300}"
                    raise OnelipError(f"no Ray cluster at {address or 'this machine'}: {reason}") from error
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self._largest_cpus = int(max(node.get("CPU", 1) for node in nodes))
        self._largest_memory = int(max(node.get("memory", 0) for node in nodes))
        gpus, cpus = (sum(node.get(kind, 0) for node in nodes) for kind in ("GPU", "CPU"))
        self.workers = max(1, int(gpus or cpus // self.cpus_per_job))
        self._resources = {constraint: 0.001} if constraint else {}
        if constraint and not any(constraint in node for node in nodes):
            say(f"no node of the cluster has the resource {constraint}: all jobs wait until one joins it")
        if device == "cuda" and max(node.get("GPU", 0) for node in nodes) < self.gpus_per_training:
            say(f"no node of the cluster has {self.gpus_per_training} GPU: jobs wait until one joins; see `ray status`")
        self._tasks: dict[Any, str] = {}
        self._began: set[str] = set()

    def start(self, job: Job, *others: Job) -> None:
        """Queue a task."""
        gpus = gpu_share(job, self.card_gib, self.gpus_per_training)
        cpus = self._largest_cpus if job.runs_alone and job.device == "cpu" else self.cpus_per_job
        cpus = min(cpus, self._largest_cpus)
        command = self.command(job, threads=cpus)
        options = {
            "name": job.name,
            "num_cpus": cpus,
            "num_gpus": gpus,
            "memory": self._memory(job) if not gpus else None,
            "resources": self._resources,
            "max_retries": -1,
            # What one node could not do, because its disk is full for one, another one may.
            "scheduling_strategy": "SPREAD" if job.name in self._began else "DEFAULT",
        }
        self._began.add(job.name)
        self._tasks[self._ray.remote(run_process).options(**options).remote(command)] = job.name

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
        return look_until(self._look, seconds)

    def _look(self) -> list[Ended]:
        done, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=0)
        return [self._end_of(task) for task in done]

    def _end_of(self, task: Any) -> Ended:
        name = self._tasks.pop(task)
        try:
            return Ended(name, self._ray.get(task))
        except self._ray.exceptions.RayTaskError as error:  # of the node: it could not start the command
            return Ended(name, ExitCode.UNWRITTEN, one_line(error.cause))
        except self._ray.exceptions.RayError:
            return Ended(name, None)

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
        import ray.cloudpickle
        import ray.exceptions
    except ImportError as error:
        raise InvalidInputError('the engine ray needs the extra "ray": pip install "onelip[bench,ray]"') from error
    ray.cloudpickle.register_pickle_by_value(onelip)  # what starts the command on a node has no need of torch itself
    return ray


_TIMEOUT_SECONDS = 5.0

# Heads of Ray speak gRPC, which is HTTP/2: a client's first words and empty settings, answered by settings.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_SETTINGS_FRAME, _TYPE_OF_FRAME = 4, 3


def cluster_address(ray: Any, given: str | None) -> str | None:
    """host:port of the cluster that answers for an address of a user, or None where Ray is to start one.

    Without an address, and for "auto", Ray knows: RAY_ADDRESS, or the cluster that this machine belongs to.
    """
    try:
        found = ray._private.services.canonicalize_bootstrap_address(given)
    except ConnectionError as error:
        raise InvalidInputError("no Ray cluster runs on this machine: `ray start --head` starts one") from error
    except ValueError:
        found = given
    if found is None:
        return None
    host, _, port = found.rpartition(":")
    if not (host and port.isdigit() and int(port) < 2**16) or "/" in host:
        raise InvalidInputError(f"the address of a Ray cluster is auto or host:port, got {found!r}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT_SECONDS) as connection:
            answer = None if os.environ.get("RAY_USE_TLS") == "1" else _answer(connection)
    except OSError as error:
        raise InvalidInputError(
            f"no Ray cluster answers at {found}: {error.strerror or error}; `ray start --head` starts one, "
            "`ray stop` forgets one that has ended"
        ) from error
    if answer is not None and answer[_TYPE_OF_FRAME : _TYPE_OF_FRAME + 1] != bytes([_SETTINGS_FRAME]):
        raise InvalidInputError(
            f"what listens at {found} is not the head of a Ray cluster; its port is 6379 by default"
        )
    return found


def _answer(connection: socket.socket) -> bytes:
    """The beginning of the first frame, or of whatever comes; fewer bytes where the other side hangs up."""
    connection.sendall(_GREETING)
    answer = b""
    while len(answer) <= _TYPE_OF_FRAME and (more := connection.recv(64)):
        answer += more
    return answer
