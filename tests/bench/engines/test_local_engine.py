"""Processes on this machine: who may run beside whom."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import tiny_data
from fake_jobs import FakeJob

from onelip.bench.cli.engine_options import EngineOptions
from onelip.bench.engines import engine_base
from onelip.bench.engines.local_engine import LocalEngine
from onelip.bench.study.job_base import JOBS
from onelip.bench.study.options import preset

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


@pytest.fixture
def _sleeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are processes that say what they were given and sleep until they are stopped."""
    script = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75));"
        "print(os.environ.get('OMP_NUM_THREADS'), os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True); time.sleep(60)"
    )
    monkeypatch.setattr(engine_base, "PROGRAM", (PYTHON, "-c", script))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def _output(engine: LocalEngine, job: FakeJob) -> list[str]:
    path = engine.study / JOBS / job.name / "output.log"
    while not path.exists() or not path.read_text().endswith("\n"):  # output is not buffered
        time.sleep(0.01)
    return path.read_text().split()


@pytest.mark.usefixtures("_sleeping")
def test_a_time_is_measured_alone_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelip.bench.engines.local_engine.usable_cores", lambda: 8)
    engine = LocalEngine(tmp_path, workers=2)
    timed, first, second, third = FakeJob("timed", alone=True), FakeJob("a"), FakeJob("b"), FakeJob("c")
    engine.start(first)
    assert engine.has_room(second)
    assert not engine.has_room(timed)
    engine.start(second)
    assert not engine.has_room(third)
    assert _output(engine, first)[0] == _output(engine, second)[0] == "4"
    engine.stop()
    codes = {ended.name: ended.code for _ in range(2) if engine.running for ended in engine.wait(600)}
    assert codes == {"a": 75, "b": 75}
    engine.start(timed)
    assert not engine.has_room(first)
    assert _output(engine, timed)[0] == "8"
    engine.stop()
    engine.close()


@pytest.mark.usefixtures("_sleeping")
def test_counting_takes_a_core_and_not_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelip.bench.engines.local_engine.usable_cores", lambda: 2)
    engine = LocalEngine(tmp_path, workers=1)
    counts, trains = [FakeJob(title, on_device=False) for title in "abc"], FakeJob("trains")
    for job in counts[:2]:
        assert engine.has_room(job)
        engine.start(job)
    assert not engine.has_room(counts[2])
    assert not engine.has_room(trains)
    assert _output(engine, counts[0])[0] == "1"
    engine.stop()
    engine.close()


@pytest.mark.usefixtures("_sleeping")
def test_each_process_sees_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    engine = LocalEngine(tmp_path, workers=2)
    jobs = [FakeJob("a", device="cuda", alone=True), FakeJob("b", device="cuda")]
    for job in jobs:
        assert engine.has_room(job), "a GPU of its own is alone enough"
        engine.start(job)
    assert [_output(engine, job)[1] for job in jobs] == ["4", "7"]
    engine.stop()
    engine.close()


@pytest.mark.usefixtures("_sleeping")
def test_a_time_is_measured_alone_on_a_gpu_that_trainings_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    engine = LocalEngine(tmp_path, workers=4)
    first, timed, second, third = (
        FakeJob(name, device="cuda", alone=name == "timed") for name in ("a", "timed", "b", "c")
    )
    for job in (first, timed, second):
        assert engine.has_room(job)
        engine.start(job)
    assert [_output(engine, job)[1] for job in (first, timed, second)] == ["0", "1", "0"]
    assert not engine.has_room(third)
    engine.stop()
    while engine.running:
        engine.wait(600)
    assert engine.has_room(timed), "all places are free again"
    engine.start(third)
    engine.start(second)
    assert not engine.has_room(timed), "nowhere alone"
    engine.stop()
    engine.close()


@pytest.mark.usefixtures("_sleeping")
def test_a_training_on_two_gpus_waits_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    engine = LocalEngine(tmp_path, workers=2, gpus_per_training=2)
    first, second, third = (FakeJob(title, device="cuda") for title in "abc")
    for job in (first, second):
        assert engine.has_room(job)
        engine.start(job)
    assert not engine.has_room(third)
    assert [_output(engine, job)[1] for job in (first, second)] == ["0,1", "2,3"]
    assert engine.command(first).arguments[-2:] == ("--processes", "2")
    engine.stop()
    engine.close()


def test_jobs_have_huge_pages_unless_the_user_chose_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(tmp_path, workers=1)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert engine.command(FakeJob("a")).environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    assert engine.command(FakeJob("a")).environment["GLIBC_TUNABLES"] == "glibc.malloc.check=1"


def test_budgets_of_processor_time_are_trained_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its share of the cores; budgets of the wall clock one after the other, with all of them."""
    for module in ("engines.local_engine", "cli.engine_options"):
        monkeypatch.setattr(f"onelip.bench.{module}.usable_cores", lambda: 4)
    for clock, workers in (("cores", 4), ("time", 1)):
        engine = EngineOptions().make_engine(tmp_path, [preset("quick").changed(clock=clock)])
        assert isinstance(engine, LocalEngine)
        assert engine.workers == workers
        engine.close()


def test_trainings_that_do_not_fit_together_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onelip.bench.engines.local_engine.available_memory", lambda: 100)
    monkeypatch.setattr("onelip.bench.engines.local_engine.start_process", lambda command: _Waiting())
    for needed, together in ((50, True), (51, False)):
        monkeypatch.setattr("onelip.bench.engines.local_engine.training_bytes", lambda *_, needed=needed: needed)
        engine = LocalEngine(tmp_path, workers=2)
        assert engine.has_room(FakeJob("a"))
        engine.start(FakeJob("a"))
        assert engine.has_room(FakeJob("b")) is together
        engine.close()


def test_waiting_for_another_driver_takes_no_core(tmp_path: Path) -> None:
    """An engine without a process has nothing to wait for, and pauses all the same."""
    engine, started, busy = LocalEngine(tmp_path), time.monotonic(), time.process_time()
    assert engine.wait(0.5) == []
    assert time.monotonic() - started >= 0.5
    assert time.process_time() - busy < 0.25


class _Waiting:
    def poll(self) -> None:
        return None
