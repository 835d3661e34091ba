"""A job's command as a process of its own: on this machine, and inside the tasks of Ray and Slurm."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from onelip.atomic_files import open_regular
from onelip.bench.engines.engine_base import JobCommand
from onelip.bench.study.attempts import PARENT_VARIABLE

PATIENCE_SECONDS = 30.0
"""Time for a training to finish its step and write a checkpoint."""

_SECONDS_PER_LOOK = 0.2


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
            time.sleep(_SECONDS_PER_LOOK)
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
