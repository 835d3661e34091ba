"""Jobs without a network, and an engine without processes: for tests of who does what when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onelip.bench.engines.engine_base import Ended, Engine
from onelip.bench.records import NetworkSpec
from onelip.bench.study.attempts import attempt
from onelip.bench.study.job_base import Job, JobKind, JobOptions, JobState, JobStatus


@dataclass(frozen=True, eq=False)
class FakeJob(Job):
    """Done when its file says so."""

    title: str
    needed: tuple[FakeJob, ...] = ()
    alone: bool = False
    bears: bool = False
    on_device: bool = True
    device: str = "cpu"
    kind_name: JobKind = "train"

    @property
    def kind(self) -> JobKind:  # type: ignore[override]
        return self.kind_name

    def make_name(self) -> str:
        return self.title

    @property
    def network(self) -> NetworkSpec:
        return NetworkSpec(method=self.title)

    @property
    def details(self) -> dict[str, Any]:
        return {"seed": 0, "budget": "1h"}

    @property
    def entry(self) -> dict[str, Any]:
        return {}

    @property
    def needs(self) -> tuple[Job, ...]:
        return self.needed

    @property
    def bears_failed_needs(self) -> bool:
        return self.bears

    @property
    def runs_alone(self) -> bool:
        return self.alone

    @property
    def uses_device(self) -> bool:
        return self.on_device

    def folder(self, study: Path) -> Path | None:
        return None

    def recorded(self, study: Path) -> JobState:
        path = study / self.title
        word = path.read_text() if path.exists() else "pending"
        return JobState(JobStatus(word), "broken" if word == "failed" else None, is_final=False)

    def run(self, study: Path, options: JobOptions) -> None:
        (study / self.title).write_text("done")

    def estimated_seconds(self, study: Path) -> float | None:
        return 60.0


@dataclass
class ScriptedEngine(Engine):
    """Jobs end in the order in which they were started, as `script` says: the exit codes of each job in turn."""

    study: Path
    script: dict[str, list[int | None]] = field(default_factory=dict)
    room: Callable[[Job, int], bool] = lambda job, running: True
    started: list[str] = field(default_factory=list)
    stopped: bool = False
    waits: int = 0
    name = "scripted"

    def __post_init__(self) -> None:
        self._running: list[Job] = []

    def has_room(self, job: Job) -> bool:
        return self.room(job, len(self._running))

    def start(self, job: Job, *others: Job) -> None:
        self.started += [one.name for one in (job, *others)]
        self._running += [job, *others]

    @property
    def running(self) -> int:
        return len(self._running)

    def wait(self, seconds: float) -> list[Ended]:
        self.waits += 1
        if not self._running:
            return []
        job = self._running.pop(0)
        codes = self.script.get(job.name, [])
        code = codes.pop(0) if codes else 0
        if code == 0:
            job.run(self.study, JobOptions())
        return [Ended(job.name, code)]

    def stop(self) -> None:
        self.stopped = True


class InlineEngine(Engine):
    """Runs jobs in this process, one after the other."""

    name = "inline"

    def __init__(self, study: Path, options: JobOptions | None = None) -> None:
        super().__init__(study)
        self.options = options or JobOptions()
        self._queue: list[Job] = []

    def has_room(self, job: Job) -> bool:
        return not self._queue

    def start(self, job: Job, *others: Job) -> None:
        self._queue.append(job)

    @property
    def running(self) -> int:
        return len(self._queue)

    def wait(self, seconds: float) -> list[Ended]:
        return [Ended(job.name, attempt(job, self.study, self.options)) for job in (self._queue.pop(),)]

    def stop(self) -> None:
        self._queue.clear()
