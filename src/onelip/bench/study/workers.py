"""Several workers on this machine, each a process: one per GPU, or as many as asked for on a CPU."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from onelip.bench.study.jobs import Circumstances, Job, JobState, JobStatus
from onelip.bench.study.loop import Observer
from onelip.bench.study.options import StudyOptions

_PATIENCE_SECONDS = 20.0
_INTERRUPTED = 130
WORKER = (sys.executable, "-m", "onelip.bench.study.worker")


@dataclass
class _Process:
    number: int
    popen: subprocess.Popen[str]
    job: str | None = None


@dataclass
class Workers:
    """Starts processes, passes their events on, and replaces one that a job has killed."""

    options: Sequence[StudyOptions]
    jobs: Sequence[Job]
    study: Path
    how: Circumstances
    count: int
    observer: Observer
    killed: dict[str, JobState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = {job.name: job for job in self.jobs}
        self._lines: queue.Queue[tuple[_Process, str | None]] = queue.Queue()
        self._running: list[_Process] = []

    def work(self) -> dict[str, JobState]:
        """Until all processes have ended; returns the failures of jobs that killed their process."""
        try:
            self._running = [self._start(number) for number in range(self.count)]
            while self._running:
                process, line = self._lines.get()
                if line is None:
                    self._ended(process)
                else:
                    self._event(process, line)
        except KeyboardInterrupt:
            self._stop()
            raise
        return self.killed

    def _start(self, number: int) -> _Process:
        task = {
            "study": str(self.study),
            "options": [asdict(one) for one in self.options],
            "jobs": [name for name in self._by_name if name not in self.killed],
            "device": self.how.device,
            "checkpoint_seconds": self.how.checkpoint_seconds,
            "threads": self._threads(),
        }
        log = (self.study / f"worker-{number}.log").open("a")
        popen = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | self._visible(number),
        )
        log.close()
        process = _Process(number, popen)
        assert popen.stdin is not None
        popen.stdin.write(json.dumps(task) + "\n")
        popen.stdin.flush()  # and stays open: its end tells the worker that we are gone
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _threads(self) -> int:
        """Cores of each worker, so that they do not get in each other's way; 0: as torch chooses."""
        if self.how.device != "cpu":
            return 0
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // self.count)

    def _visible(self, number: int) -> dict[str, str]:
        """Each process sees one GPU under the same name, so that the identity of a measurement has no number."""
        if self.how.device == "cpu":
            return {}
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = given.split(",") if given else [str(index) for index in range(torch.cuda.device_count())]
        return {"CUDA_VISIBLE_DEVICES": names[number % len(names)]}

    def _read(self, process: _Process) -> None:
        assert process.popen.stdout is not None
        for line in process.popen.stdout:
            self._lines.put((process, line))
        self._lines.put((process, None))

    def _event(self, process: _Process, line: str) -> None:
        event = json.loads(line)
        job = self._by_name[event["job"]]
        if event["event"] == "started":
            process.job = job.name
            self.observer.started(job)
        else:
            process.job = None
            state = event["state"]
            self.observer.ended(job, JobState(**state | {"status": JobStatus(state["status"])}))

    def _ended(self, process: _Process) -> None:
        """A process has closed its output; if it was in the middle of a job, the job is to blame."""
        code = process.popen.wait()
        _close(process)
        self._running.remove(process)
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        if process.job is None:
            if code:
                raise RuntimeError(f"a worker ended with code {code}, see {self.study}/worker-{process.number}.log")
            return
        ending = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"code {code}"
        reason = f"its process ended with {ending}; see worker-{process.number}.log"
        state = JobState(JobStatus.FAILED, reason)
        self.killed[process.job] = state
        self.observer.ended(self._by_name[process.job], state)
        self._running.append(self._start(process.number))

    def _stop(self) -> None:
        """End all processes; what they were doing goes on from its last checkpoint next time."""
        for process in self._running:
            process.popen.send_signal(signal.SIGINT)
        for process in self._running:
            try:
                process.popen.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()
            _close(process)


def _close(process: _Process) -> None:
    for pipe in (process.popen.stdin, process.popen.stdout):
        if pipe is not None:
            pipe.close()
