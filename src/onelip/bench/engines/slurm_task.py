"""A job's command inside a job of Slurm: how it is run there, left before the time limit, and continued."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from typing import Any

from onelip.bench.engines.engine_base import PATIENCE_SECONDS, JobCommand, start_process

_SECONDS_PER_LOOK = 0.5


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
