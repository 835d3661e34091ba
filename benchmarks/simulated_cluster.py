"""A study on a cluster that exists only as a clock: python benchmarks/simulated_cluster.py [--preset paper]

Jobs take their estimated time, nodes fail, jobs are pre-empted.

The driver, the plan, the records and the search are the real ones, so that a simulated study shows what a real one
would do: how long it takes, what failures cost, and that every record is written once. Only the networks are not
trained: their records hold numbers without a meaning, and are written to a folder that is thrown away.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import random
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.bench.engines.driver import Driver, Silent
from onelip.bench.engines.engine_base import Ended, Engine
from onelip.bench.records import RECORD_FILE, RunStatus, new_record
from onelip.bench.records.store import known_record
from onelip.bench.study.attempts import ExitCode
from onelip.bench.study.estimates import KIND as MEASURE
from onelip.bench.study.job_base import RUNS, Job, JobOptions, JobStatus
from onelip.bench.study.jobs import MeasureJob, TrainJob
from onelip.bench.study.live_view import short_duration
from onelip.bench.study.options import preset
from onelip.bench.study.planner import plan
from onelip.bench.study.search import GOAL, TrialJob
from onelip.bench.training.loop import KIND as TRAIN
from onelip.errors import InvalidInputError

_HOUR = 3600.0


@dataclass(frozen=True)
class Cluster:
    """Machines with GPUs and their troubles.

    Args:
        nodes: machines.
        gpus_per_node: GPUs of each.
        failures_per_hour: part of the nodes that fail within an hour; their jobs lose what they have not saved.
        preemptions_per_hour: part of the jobs that are pre-empted within an hour; they save a checkpoint first.
        repair_seconds: until a node is back.
        checkpoint_seconds: time between checkpoints.
        start_seconds: of an attempt before it makes progress.
        seed: of the troubles.
    """

    nodes: int = 8
    gpus_per_node: int = 8
    failures_per_hour: float = 0.05
    preemptions_per_hour: float = 0.05
    repair_seconds: float = 1800.0
    checkpoint_seconds: float = 300.0
    start_seconds: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 1:
            raise InvalidInputError(f"a cluster has 1 node and GPU or more, got {self.nodes} and {self.gpus_per_node}")
        if not (0 <= self.failures_per_hour < 1 and 0 <= self.preemptions_per_hour < 1):
            raise InvalidInputError(f"failures per hour are a part from 0 to below 1, got {self.failures_per_hour}")


@dataclass(frozen=True)
class _Work:
    """One attempt: where it runs, and since when it makes progress."""

    job: Job
    node: int
    gpus: int
    begins: float


def simulate(jobs: Sequence[Job], cluster: Cluster, gpus_per_training: int = 1) -> SimulatedEngine:
    """Run a study on a cluster, in a folder in memory where there is one; the engine knows how it went."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="onelip-simulated-", dir=memory) as folder:
        engine = SimulatedEngine(Path(folder), cluster, gpus_per_training)
        states = Driver(jobs, Path(folder), engine, Silent()).run()
    assert all(state.status is JobStatus.DONE for state in states.values())
    assert engine.completed == dict.fromkeys((job.name for job in jobs), 1)
    return engine


class SimulatedEngine(Engine):
    """Places jobs on free GPUs in the order in which they come; jobs that need none begin at once."""

    name = "simulate"

    def __init__(self, study: Path, cluster: Cluster, gpus_per_training: int = 1) -> None:
        super().__init__(study, gpus_per_training=gpus_per_training)
        if not 1 <= gpus_per_training <= cluster.gpus_per_node:
            raise InvalidInputError(f"a node has 1 to {cluster.gpus_per_node} GPUs for a job, not {gpus_per_training}")
        self.cluster, self.clock = cluster, 0.0
        self.workers = cluster.nodes * cluster.gpus_per_node
        self.busy_seconds = self.lost_seconds = 0.0
        self.node_failures = self.preemptions = 0
        self.completed: Counter[str] = Counter()
        self._random = random.Random(cluster.seed)
        self._free = dict.fromkeys(range(cluster.nodes), cluster.gpus_per_node)
        self._queue: deque[Job] = deque()
        self._working: dict[str, _Work] = {}
        self._saved: defaultdict[str, float] = defaultdict(float)
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, str, object]] = []
        for node in range(cluster.nodes):
            self._plan_failure(node)

    @property
    def running(self) -> int:
        """Jobs that wait for a GPU or have one."""
        return len(self._queue) + len(self._working)

    def start(self, job: Job, *others: Job) -> None:
        """Into the queue."""
        self._queue += [job, *others]

    def wait(self, seconds: float) -> list[Ended]:
        """Move the clock to the next event that ends a job."""
        self._place()
        while self._events:
            self.clock, _, kind, subject = heapq.heappop(self._events)
            ended = self._happens(kind, subject)
            if ended:
                return ended
            self._place()
        return []

    def stop(self) -> None:
        """Nothing runs."""
        self._queue.clear()
        self._working.clear()

    def _later(self, seconds: float, kind: str, subject: object) -> None:
        heapq.heappush(self._events, (self.clock + seconds, next(self._numbers), kind, subject))

    def _plan_failure(self, node: int) -> None:
        if self.cluster.failures_per_hour:
            self._later(_HOUR * self._random.expovariate(self.cluster.failures_per_hour), "failure", node)

    def _place(self) -> None:
        """Jobs of the queue to free GPUs. A job that uses none has a core of the machine that drives the study."""
        while self._queue:
            job, node = self._queue[0], -1
            gpus = 0 if not job.uses_device else self.gpus_per_training if job.trains else 1
            if gpus:
                node = max(self._free, key=self._free.__getitem__, default=-1)
                if node < 0 or self._free[node] < gpus:
                    return
                self._free[node] -= gpus
            self._begin(self._queue.popleft(), node, gpus)

    def _begin(self, job: Job, node: int, gpus: int) -> None:
        work = _Work(job, node, gpus, self.clock + self.cluster.start_seconds)
        self._working[job.name] = work
        needed = (job.estimated_seconds(self.study) or _HOUR) - self._saved[job.name]
        self._later(self.cluster.start_seconds + needed, "end", work)
        if self.cluster.preemptions_per_hour and node >= 0:
            self._later(_HOUR * self._random.expovariate(self.cluster.preemptions_per_hour), "preemption", work)

    def _happens(self, kind: str, subject: object) -> list[Ended]:
        if isinstance(subject, _Work):
            if self._working.get(subject.job.name) is not subject:  # an attempt that has ended before
                return []
            return [self._ends(subject) if kind == "end" else self._preempted(subject)]
        assert isinstance(subject, int)
        if kind == "repair":
            self._free[subject] = self.cluster.gpus_per_node
            self._plan_failure(subject)
            return []
        self.node_failures += 1
        self._free.pop(subject)
        self._later(self.cluster.repair_seconds, "repair", subject)
        return [self._lost(work) for work in list(self._working.values()) if work.node == subject]

    def _ends(self, work: _Work) -> Ended:
        self._leave(work)
        write_simulated_record(work.job, self.study)
        self.completed[work.job.name] += 1
        return Ended(work.job.name, ExitCode.DONE)

    def _preempted(self, work: _Work) -> Ended:
        """It saves a checkpoint first."""
        self.preemptions += 1
        self._saved[work.job.name] += max(0.0, self.clock - work.begins)
        self._leave(work)
        return Ended(work.job.name, ExitCode.LEFT)

    def _lost(self, work: _Work) -> Ended:
        """With its node, and what it has done since its last checkpoint."""
        done = max(0.0, self.clock - work.begins)
        unsaved = done % self.cluster.checkpoint_seconds
        self._saved[work.job.name] += done - unsaved
        self.lost_seconds += work.gpus * unsaved
        self._leave(work)
        return Ended(work.job.name, None)

    def _leave(self, work: _Work) -> None:
        del self._working[work.job.name]
        if work.node in self._free:
            self._free[work.node] += work.gpus
        self.busy_seconds += work.gpus * (self.clock - work.begins + self.cluster.start_seconds)


def write_simulated_record(job: Job, study: Path) -> None:
    """What the job would have written; the choice of a search is made for real."""
    if isinstance(job, MeasureJob):
        config = {**job.details, "network": job.network, "hardware": "simulated"}
        _finish(study, MEASURE, config, _MEASURED[job.measurement.quantity], job.name)
    elif isinstance(job, TrialJob):
        _finish(study, TRAIN, job.spec, _trained(job.name), job.name)
    elif isinstance(job, TrainJob):
        spec = job.resolved(study)
        assert spec is not None
        accuracy = random.Random(job.name).random()
        proven = {"test_accuracy": accuracy, "test_certified_accuracy_36": accuracy / 2, "diagnostics": []}
        _finish(study, TRAIN, spec, _trained(job.name) | proven, job.name)
    else:
        job.run(study, JobOptions())


def _trained(name: str) -> dict[str, Any]:
    return {"epochs": 1.0, "steps": 1, GOAL: random.Random(name).random()}


_PHASE = {name: {"median": 1.0} for name in ("seconds", "reference_seconds", "ratio")}
_MEASURED: dict[str, dict[str, Any]] = {
    "time": {"fits": True, "training": _PHASE, "inference": _PHASE, "seconds_per_epoch": 1.0},
    "memory": {"fits": True, "parameters": 0, "training": 0, "inference": 0},
    "macs": {"fits": True, "parameters": 0, "input": 0, "training_step": 0, "inference": 0},
}


def _finish(study: Path, kind: str, config: Any, metrics: dict[str, Any], job: str) -> None:
    """One write without a lock: nobody else sees the folder."""
    record = new_record(kind, config, job)
    folder = study / RUNS / record.name
    known = known_record(folder)
    folder.mkdir(parents=True, exist_ok=True)
    done = record.changed(status=RunStatus.FINISHED, metrics=({} if known is None else known.metrics) | metrics)
    (folder / RECORD_FILE).write_text(done.to_json(), encoding="utf-8")


def main() -> None:
    """Simulate a preset and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--failures", type=float, default=0.05, help="of the nodes and of the jobs, within an hour")
    given = parser.parse_args()
    jobs = plan(preset(given.preset).changed(device="cuda"))
    engine = simulate(jobs, Cluster(given.nodes, given.gpus_per_node, given.failures, given.failures))
    hours, lost = engine.busy_seconds / 3600, engine.lost_seconds / 3600
    print(f"{len(jobs)} jobs on {engine.workers} simulated GPUs: {short_duration(engine.clock)}")
    print(f"GPU-hours: {hours:,.0f}, of which {lost:,.1f} were lost with their nodes")
    print(f"node failures: {engine.node_failures}, pre-emptions: {engine.preemptions}")
    print(f"records: {len(engine.completed)} jobs have theirs, each written once")


if __name__ == "__main__":
    main()
