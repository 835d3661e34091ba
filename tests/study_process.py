"""The command `onelip` on the data set "tiny" in a process that ends in a chosen way; also as a worker of a study.

python tests/study_process.py kill-at 17 0.02 compare ...    SIGKILL 20 ms after the 17th write to the disk begins
python tests/study_process.py worker aol                     a worker whose trainings of aol kill the process
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import tiny_data

from onelip.bench.training.trainer import Trainer


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(write: int, delay: float) -> None:
    """Every atomic write begins by fsync: counting them is a clock that does not depend on the machine's speed."""
    original, count = os.fsync, [0]

    def counting(descriptor: int) -> None:
        count[0] += 1
        if count[0] == write:
            threading.Timer(delay, die).start()
        original(descriptor)

    os.fsync = counting


def kill_in_training(method: str) -> None:
    original = Trainer.step

    def step(self: Trainer, *args: Any) -> float:
        if self.config.network.method == method:
            die()
        return original(self, *args)

    setattr(Trainer, "step", step)  # noqa: B010 - with other parameters, which is fine here


if __name__ == "__main__":
    tiny_data.install(setattr)
    if sys.argv[1] == "worker":
        from onelip.bench.study.worker import main as work

        kill_in_training(sys.argv[2])
        sys.exit(work())
    from onelip.bench.cli import main

    kill_at(int(sys.argv[2]), float(sys.argv[3]))
    sys.argv[1:] = sys.argv[4:]
    main()
