"""Array jobs of Slurm through submitit: one Slurm job per job of the study, requeued until it is done.

Before its time limit, and when it is pre-empted, Slurm signals a job: the training writes a checkpoint, submitit puts
the same job into the queue again, and it continues there.
"""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onelip
from onelip.atomic_files import write_atomically
from onelip.bench.engines.engine_base import (
    PATIENCE_SECONDS,
    Ended,
    Engine,
    JobCommand,
    gpu_share,
    look_until,
    start_process,
)
from onelip.bench.study.job_base import JOBS, Job, job_folder
from onelip.errors import InvalidInputError, OnelipError

_SUBMITIT_FOLDER = ".submitit"
_ID_FILE = "slurm_id"
_SIGNAL_SECONDS = 120.0
_NO_LIMIT = 10**6
_SECONDS_PER_LOOK = 0.5
_SECONDS_PER_QUEUE_LOOK = 20.0  # every question costs the cluster's controller some work
_LARGEST_ARRAY = 1000  # Slurm's default MaxArraySize is 1001


@dataclass(frozen=True)
class SlurmRequest:
    """What every job asks of the cluster; None is the cluster's own default."""

    partition: str | None = None
    account: str | None = None
    constraint: str | None = None
    time_limit_seconds: float = 12 * 3600.0
    cpus_per_job: int | None = None


class SlurmEngine(Engine):
    """Jobs of one kind are submitted together as an array.

    Args:
        study: its folder, which all nodes see under the same path.
        request: partition, account and so on.
        is_local: submitit's local executor instead of Slurm: processes on this machine.
        shared: arguments of `Engine`.
    """

    name = "slurm"

    def __init__(self, study: Path, request: SlurmRequest, *, is_local: bool = False, **shared: Any) -> None:
        super().__init__(study, **shared)
        self._submitit, self.request, self.is_local = _import_submitit(), request, is_local
        if not is_local and shutil.which("srun") is None:
            raise InvalidInputError(
                "there is no Slurm here: srun is missing; --slurm-local tries the study out without"
            )
        self._waiting: list[Job] = []
        self._submitted: dict[str, Any] = {}
        self._gone: set[str] = set()
        self._looked_at = time.monotonic()
        self._refused_at = -_SECONDS_PER_QUEUE_LOOK
        self._folder = study.resolve() / JOBS / _SUBMITIT_FOLDER
        self._own_ids: set[str] = set()
        self._at_first: set[str] | None = None

    def start(self, job: Job, *others: Job) -> None:
        """Keep it for the next array, unless another driver has put it into the queue and it is still there."""
        earlier = self._queued_before(job)
        if earlier is None:
            self._waiting.append(job)
        else:
            self._submitted[job.name] = earlier

    def _queued_before(self, job: Job) -> Any:
        """The Slurm job of another driver, such as one that was killed, for this job of the study."""
        try:
            number = (job_folder(job, self.study) / _ID_FILE).read_text()
        except OSError:
            return None
        if self.is_local or number in self._own_ids:
            return None
        if self._at_first is None:
            self._at_first = _queued() or set()
        return self._submitit.SlurmJob(self._folder, number) if number in self._at_first else None

    @property
    def running(self) -> int:
        """Jobs that wait for their array, are queued, or run."""
        return len(self._waiting) + len(self._submitted)

    def wait(self, seconds: float) -> list[Ended]:
        """Submit what was started since the last call, then look until something has ended."""
        self._submit()
        return look_until(self._look, seconds, _SECONDS_PER_LOOK)

    def _look(self) -> list[Ended]:
        return [Ended(name, _exit_code(self._submitted.pop(name))) for name in self._ended()]

    def _ended(self) -> list[str]:
        """Jobs with a result, and those that have left the queue without one, twice in a row.

        submitit asks sacct, which clusters without accounting do not have.
        """
        if self.is_local:
            return [name for name, job in self._submitted.items() if job.done()]
        done = [name for name, job in self._submitted.items() if job.paths.result_pickle.exists()]
        if not done and time.monotonic() - self._looked_at > _SECONDS_PER_QUEUE_LOOK:
            self._looked_at = time.monotonic()
            queue = _queued()
            if queue is not None:
                absent = {name for name, job in self._submitted.items() if job.job_id not in queue}
                done, self._gone = sorted(absent & self._gone), absent - self._gone
        return done

    def stop(self) -> None:
        """Cancel all jobs; those that run save a checkpoint."""
        for job in self._submitted.values():
            job.cancel(check=False)
        self._waiting.clear()

    def _submit(self) -> None:
        """Arrays of what was started; what Slurm does not take for the moment is tried again later."""
        if time.monotonic() - self._refused_at < _SECONDS_PER_QUEUE_LOOK:
            return
        groups: dict[tuple[tuple[str, Any], ...], list[Job]] = {}
        for job in self._waiting:
            groups.setdefault(tuple(self.parameters(job).items()), []).append(job)
        self._waiting.clear()
        for parameters, jobs in groups.items():
            for first in range(0, len(jobs), _LARGEST_ARRAY):
                array = jobs[first : first + _LARGEST_ARRAY]
                try:
                    self._submit_array(array, dict(parameters))
                except Exception as error:  # submitit raises whatever it has
                    if self._is_refused_for_good():
                        raise OnelipError(f"Slurm takes no jobs: {' '.join(str(error).split())}") from error
                    self._waiting += array
                    self._refused_at = time.monotonic()

    def _is_refused_for_good(self) -> bool:
        """Not while jobs of ours are in the queue, which may be as many as allowed, or while the controller restarts.

        One that has never answered is an error.
        """
        has_answered = self._own_ids or self._at_first
        return not self._submitted and (self.is_local or not has_answered or _queued() is not None)

    def _submit_array(self, jobs: list[Job], parameters: dict[str, Any]) -> None:
        executor = self._submitit.AutoExecutor(
            folder=self._folder,
            cluster="local" if self.is_local else "slurm",
            slurm_max_num_timeout=_NO_LIMIT,
        )
        executor.update_parameters(
            **parameters,
            slurm_array_parallelism=_LARGEST_ARRAY,  # how many run at once is Slurm's to decide
            slurm_additional_parameters={"requeue": True},
        )
        cores = self.request.cpus_per_job or 1  # a job that runs alone uses all of its node
        tasks = [SlurmTask(self.command(job, threads=None if job.runs_alone else cores)) for job in jobs]
        with contextlib.redirect_stderr(io.StringIO()), executor.batch():  # what sbatch complains of is in the error
            submitted = [executor.submit(task) for task in tasks]
        for job, one in zip(jobs, submitted, strict=True):
            self._submitted[job.name] = one
            self._own_ids.add(one.job_id)
            folder = job_folder(job, self.study)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / _ID_FILE, one.job_id.encode())

    def parameters(self, job: Job) -> dict[str, Any]:
        """What is asked of the cluster for a job, in submitit's words."""
        request = self.request
        gpus = int(gpu_share(job, per_training=self.gpus_per_training))
        found: dict[str, Any] = {
            "name": f"onelip-{job.kind}",
            "timeout_min": max(1, round(request.time_limit_seconds / 60)),
            "cpus_per_task": request.cpus_per_job or 1,
            "slurm_signal_delay_s": round(min(_SIGNAL_SECONDS, request.time_limit_seconds / 2)),
            "slurm_partition": request.partition,
            "slurm_account": request.account,
            "slurm_constraint": request.constraint,
            "gpus_per_node": gpus or None,
            "slurm_exclusive": True if job.runs_alone and not gpus else None,
        }
        return {name: value for name, value in found.items() if value is not None}


def _queued() -> set[str] | None:
    """Numbers of this user's jobs in the queue; None if Slurm does not answer."""
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(answer.stdout.split()) if answer.returncode == 0 else None


def _exit_code(job: Any) -> int | None:
    """Of the command; None if Slurm ended the job in another way: cancelled, with its node, ..."""
    if not job.paths.result_pickle.exists():
        return None
    try:
        return int(job.result())
    except Exception:  # submitit raises whatever ended the task
        return None


def _import_submitit() -> Any:
    try:
        import cloudpickle  # which submitit sends tasks with
        import submitit
        import submitit.core.logger
    except ImportError as error:
        raise InvalidInputError(
            'the engine slurm needs the extra "slurm": pip install "onelip[bench,slurm]"'
        ) from error
    cloudpickle.register_pickle_by_value(onelip)  # what starts the command on a node has no need of torch itself
    submitit.core.logger.get_logger().setLevel(logging.ERROR)
    return submitit


class SlurmTask:
    """What submitit calls on the node: the job's command, and how to leave and continue it.

    submitit calls `checkpoint` from a signal handler, in the middle of `__call__` and in the same thread. Waiting for a
    process takes a lock, which the handler could then never get, so that a thread of its own waits for the process.
    """

    def __init__(self, command: JobCommand) -> None:
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._waiter: threading.Thread | None = None

    def __call__(self) -> int:
        """Run the command; its exit code is the result."""
        self._process = start_process(self.command)
        self._waiter = threading.Thread(target=self._process.wait, daemon=True)
        self._waiter.start()
        while self._waiter.is_alive():
            time.sleep(_SECONDS_PER_LOOK)
        return self._process.returncode

    def checkpoint(self) -> Any:
        """Called on the signal before the end: let the training save, and ask for the same task again."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None and self._waiter is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                deadline = time.monotonic() + PATIENCE_SECONDS
                if self._waiter.is_alive():
                    self._process.send_signal(number)
                while self._waiter.is_alive() and time.monotonic() < deadline:
                    time.sleep(_SECONDS_PER_LOOK)
        return DelayedSubmission(SlurmTask(self.command))
