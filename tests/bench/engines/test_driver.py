"""The driver: order, needs, failures, processes that die, nodes that are lost, other drivers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fake_jobs import FakeJob, ScriptedEngine

from onelip.bench.engines.driver import MOST_DEATHS, Driver, Silent
from onelip.bench.file_lock import RunLock
from onelip.bench.study.attempts import OUTPUT_FILE, ExitCode
from onelip.bench.study.job_base import Job, JobState, JobStatus, job_folder


def _drive(jobs: list[FakeJob], engine: ScriptedEngine, observer: Silent | None = None) -> dict[str, JobState]:
    return Driver(jobs, engine.study, engine, observer or Silent()).run()


def _statuses(states: dict[str, JobState]) -> list[str]:
    return [state.status.value for state in states.values()]


def test_jobs_begin_in_the_order_of_the_plan_when_their_needs_are_done(tmp_path: Path) -> None:
    first, second = FakeJob("first"), FakeJob("second")
    both, last = FakeJob("both", (first, second)), FakeJob("last", (second,))
    engine = ScriptedEngine(tmp_path)
    assert set(_statuses(_drive([first, second, both, last], engine))) == {"done"}
    assert engine.started == ["first", "second", "both", "last"]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    first = FakeJob("first")
    second = FakeJob("second", (first,))
    (tmp_path / "first").write_text("done")
    engine = ScriptedEngine(tmp_path)
    assert set(_statuses(_drive([first, second], engine))) == {"done"}
    assert engine.started == ["second"]
    assert set(_statuses(_drive([first, second], ScriptedEngine(tmp_path)))) == {"done"}


def test_a_failure_stops_what_needs_it_and_nothing_else(tmp_path: Path) -> None:
    bad, good = FakeJob("bad"), FakeJob("good")
    after, later = FakeJob("after", (bad,)), FakeJob("later", (FakeJob("after", (bad,)),))
    robust = FakeJob("robust", (bad, good), bears=True)
    (tmp_path / "bad").write_text("failed")  # an earlier session: it is tried again
    engine = ScriptedEngine(tmp_path, {"bad": [ExitCode.FAILED]})
    states = _drive([bad, good, after, later, robust], engine)
    assert _statuses(states) == ["failed", "done", "failed", "failed", "done"]
    assert states["bad"].reason == "broken"
    assert "bad" in str(states["after"].reason)
    assert engine.started == ["bad", "good", "robust"]


def test_a_failure_without_a_record_tells_the_last_line_of_the_output(tmp_path: Path) -> None:
    job = FakeJob("job")
    output = job_folder(job, tmp_path) / OUTPUT_FILE
    output.parent.mkdir(parents=True)
    output.write_text("working\nonelip: cifar10 is missing\n")
    states = _drive([job], ScriptedEngine(tmp_path, {"job": [ExitCode.FAILED]}))
    assert (states["job"].status, states["job"].reason) == (JobStatus.FAILED, "cifar10 is missing")


def test_processes_that_die_are_started_again_a_few_times(tmp_path: Path) -> None:
    dying, unlucky = FakeJob("dying"), FakeJob("unlucky")
    engine = ScriptedEngine(tmp_path, {"dying": [-9] * 10, "unlucky": [-9] * (MOST_DEATHS - 1)})
    states = _drive([dying, unlucky], engine)
    assert _statuses(states) == ["failed", "done"]
    assert Counter(engine.started) == {"dying": MOST_DEATHS, "unlucky": MOST_DEATHS}
    assert "SIGKILL" in str(states["dying"].reason)


def test_a_full_disk_is_tried_again_and_told(tmp_path: Path) -> None:
    """On a cluster the next attempt may be on another node."""
    full, unlucky = FakeJob("full"), FakeJob("unlucky")
    script: dict[str, list[int | None]] = {"full": [ExitCode.UNWRITTEN] * 3, "unlucky": [ExitCode.UNWRITTEN]}
    output = job_folder(full, tmp_path) / OUTPUT_FILE
    output.parent.mkdir(parents=True)
    output.write_text("onelip: cannot write record.json: No space left on device\n")
    states = _drive([full, unlucky], ScriptedEngine(tmp_path, script))
    assert _statuses(states) == ["failed", "done"]
    assert "No space left" in str(states["full"].reason)


def test_a_record_that_shows_up_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network file systems show files of other machines after a while."""
    late, looks = JobState(JobStatus.PENDING), iter(range(100))
    recorded = FakeJob.recorded
    monkeypatch.setattr(FakeJob, "recorded", lambda *args: recorded(*args) if next(looks) > 10 else late)
    engine = ScriptedEngine(tmp_path)
    assert _statuses(_drive([FakeJob("job")], engine)) == ["done"]
    assert len(engine.started) > MOST_DEATHS, "however often"


def test_lost_nodes_and_preemptions_have_no_limit(tmp_path: Path) -> None:
    lost, left = FakeJob("lost"), FakeJob("left")
    engine = ScriptedEngine(tmp_path, {"lost": [None] * 20, "left": [ExitCode.LEFT] * 20})
    assert set(_statuses(_drive([lost, left], engine))) == {"done"}
    assert len(engine.started) == 42


def test_jobs_of_other_drivers_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is being done when the driver looks for the first time, of the other a second driver is just quicker."""
    theirs, busy = FakeJob("theirs"), FakeJob("busy")
    after = FakeJob("after", (theirs, busy))
    lock = RunLock(job_folder(theirs, tmp_path))
    engine = ScriptedEngine(tmp_path, {"busy": [ExitCode.BUSY]})
    original = ScriptedEngine.wait

    def wait(self: ScriptedEngine, seconds: float) -> list[object]:
        if self.waits == 3:
            (tmp_path / "theirs").write_text("done")
            (tmp_path / "busy").write_text("done")
            lock.release()
        return original(self, seconds)  # type: ignore[return-value]

    monkeypatch.setattr(ScriptedEngine, "wait", wait)
    busy_lock = RunLock(job_folder(busy, tmp_path / "elsewhere"))
    assert set(_statuses(_drive([theirs, busy, after], engine))) == {"done"}
    busy_lock.release()
    assert engine.started == ["busy", "busy", "after"] or engine.started == ["busy", "after"]


def test_a_job_that_another_driver_has_left_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = FakeJob("job")
    lock = RunLock(job_folder(job, tmp_path))
    engine = ScriptedEngine(tmp_path)
    original = ScriptedEngine.wait

    def wait(self: ScriptedEngine, seconds: float) -> list[object]:
        lock.release()  # its process was killed
        return original(self, seconds)  # type: ignore[return-value]

    monkeypatch.setattr(ScriptedEngine, "wait", wait)
    assert _statuses(_drive([job], engine)) == ["done"]
    assert engine.started == ["job"]


def test_an_engine_without_room_keeps_the_order(tmp_path: Path) -> None:
    jobs = [FakeJob("a", alone=True), FakeJob("b"), FakeJob("c")]
    most: list[int] = []

    def room(job: Job, running: int) -> bool:
        most.append(running)
        return running == 0

    engine = ScriptedEngine(tmp_path, room=room)
    assert set(_statuses(_drive(jobs, engine))) == {"done"}
    assert engine.started == ["a", "b", "c"]
    assert max(most) == 1


def test_every_job_is_told_once(tmp_path: Path) -> None:
    class Counting(Silent):
        def __init__(self) -> None:
            self.told: Counter[str] = Counter()

        def ended(self, job: Job, state: JobState) -> None:
            self.told[job.name] += 1

        def know(self, job: Job, state: JobState) -> None:
            self.told[job.name] += 1

    first, second = FakeJob("first"), FakeJob("second")
    (tmp_path / "first").write_text("done")
    observer = Counting()
    _drive([first, second, FakeJob("third", (first, second))], ScriptedEngine(tmp_path), observer)
    assert observer.told == {"first": 1, "second": 1, "third": 1}


def test_ctrl_c_stops_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: ScriptedEngine, seconds: float) -> list[object]:
        raise KeyboardInterrupt

    monkeypatch.setattr(ScriptedEngine, "wait", interrupt)
    engine = ScriptedEngine(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        _drive([FakeJob("job")], engine)
    assert engine.stopped


class _SharingEngine(ScriptedEngine):
    """Two processes for jobs that only count; `together` are those that shared one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.together: list[list[str]] = []
        self.free = 2

    def counting_processes(self) -> int:
        return self.free

    def start(self, job: Job, *others: Job) -> None:
        self.together.append([one.name for one in (job, *others)])
        self.free -= bool(others)
        super().start(job, *others)


def test_jobs_that_only_count_share_processes(tmp_path: Path) -> None:
    count = [FakeJob(f"count{number}", on_device=False, kind_name="measure") for number in range(5)]
    engine = _SharingEngine(tmp_path)
    assert set(_statuses(_drive([FakeJob("train"), *count, FakeJob("late")], engine))) == {"done"}
    assert engine.together == [["train"], ["count0", "count1", "count2"], ["count3", "count4"], ["late"]]


def test_jobs_whose_process_died_share_none_again(tmp_path: Path) -> None:
    """One of them may have been the reason; what its neighbours had not done is done."""
    count = [FakeJob(f"count{number}", on_device=False, kind_name="measure") for number in range(4)]
    engine = _SharingEngine(tmp_path, {"count0": [None], "count1": [None, -9, -9, -9]})
    states = _drive(count, engine)
    assert _statuses(states) == ["done", "failed", "done", "done"]
    assert engine.together[2:] == [["count0"], *[["count1"]] * MOST_DEATHS]
