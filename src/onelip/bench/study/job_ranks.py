"""One training in several processes, one per GPU, by the launcher of torchrun inside the process of the job.

The process of the job keeps its lock and its notes and computes nothing. If it is killed, the kernel interrupts the
others; if one of the others dies, the launcher ends the rest.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from onelip.bench.study.job_base import Job, JobOptions
from onelip.bench.training import LeftEarly
from onelip.errors import OnelipError

_SECONDS_PER_LOOK = 0.5


class ProcessDied(Exception):  # noqa: N818 - what happened
    """One of the processes was killed; the training can be continued."""


def run_in_processes(job: Job, study: Path, options: JobOptions) -> None:
    """Do `job.run` in `options.processes` processes that train together; raises as `job.run` does."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=options.processes,
        run_id=job.name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=_SECONDS_PER_LOOK,
    )
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the reasons are told below
    with _stopping_on_request(options):
        try:
            left = elastic_launch(config, _work_as_rank)(job, study, options.checkpoint_seconds)
        except SignalException as stop:
            raise LeftEarly("asked to stop; the same command continues") from stop
        except ChildFailedError as error:
            _, first = error.get_first_failure()
            if first.exitcode < 0:
                raise ProcessDied(f"a process of the training ended with signal {-first.exitcode}") from error
            raise OnelipError(job.recorded(study).reason or "a process of the training failed") from error
    if any(left.values()):
        raise LeftEarly("asked to stop; the same command continues")


def _work_as_rank(job: Job, study: Path, checkpoint_seconds: float) -> bool:
    """What each process does; whether it was left to be continued."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        job.run(study, JobOptions(checkpoint_seconds, stop.is_set))
    except LeftEarly:
        return True
    return False


@contextlib.contextmanager
def _stopping_on_request(options: JobOptions) -> Iterator[None]:
    """The launcher listens to SIGTERM alone: other requests to stop become one."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_SECONDS_PER_LOOK):
            if options.stop_requested():
                os.kill(os.getpid(), signal.SIGTERM)
                return

    thread = threading.Thread(target=watch, daemon=True)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for number, handler in handlers.items():
            signal.signal(number, handler)
