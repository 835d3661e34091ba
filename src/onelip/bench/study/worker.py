"""A worker in a process of its own: `python -m onelip.bench.study.worker`, started by `workers.py`, one per GPU.

The first line of its input is its task; it reports on its output, one JSON line for each event. When its input ends,
the process that started it is gone, and it ends too: at any moment, since its state is on the disk.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from onelip.bench.study.jobs import Circumstances, Job, JobState
from onelip.bench.study.loop import Worker
from onelip.bench.study.options import options_from_plain
from onelip.bench.study.plan import plan, union


class _Reporter:
    """Sends events to the process that started this one; whatever else is printed goes to the log."""

    def __init__(self) -> None:
        self._output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def started(self, job: Job) -> None:
        """The job begins."""
        self._send({"event": "started", "job": job.name})

    def ended(self, job: Job, state: JobState) -> None:
        """The job is done or has failed."""
        self._send({"event": "ended", "job": job.name, "state": dataclasses.asdict(state)})

    def _send(self, event: dict[str, Any]) -> None:
        print(json.dumps(event), file=self._output, flush=True)


def main() -> int:
    """Read the task, work, and end."""
    import torch

    reporter = _Reporter()
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if task["threads"]:
        torch.set_num_threads(task["threads"])
    jobs = union(plan(options_from_plain(values), task["device"]) for values in task["options"])
    wanted = set(task["jobs"])
    how = Circumstances(task["device"], task["checkpoint_seconds"])
    try:
        Worker([job for job in jobs if job.name in wanted], Path(task["study"]), how, reporter).work()
    except KeyboardInterrupt:
        return 130
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
