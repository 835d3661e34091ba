"""Ray and Slurm: the same small study gives the same records, also where processes are killed."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from fake_jobs import FakeJob
from small_study import OPTIONS, assert_same_records, attempts_of, planned, run_inline

from onelip.bench.engines import engine_base
from onelip.bench.engines.driver import Driver, Silent
from onelip.bench.engines.engine_base import Engine, JobCommand
from onelip.bench.engines.slurm_engine import SlurmEngine, SlurmRequest, SlurmTask
from onelip.bench.study.job_base import JobStatus
from onelip.bench.study.planner import plan

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='needs the extra "ray"')
needs_submitit = pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason='needs the extra "slurm"')


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)
    monkeypatch.setattr(engine_base, "PROGRAM", (sys.executable, tiny_data.__file__))
    tests, source = Path(tiny_data.__file__).parent, Path(engine_base.__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{source}{os.pathsep}{tests}")  # of the workers


def _kill_the_first_process(study: Path) -> threading.Thread:
    """As soon as a job has begun, in the middle of whatever it does."""

    def kill() -> None:
        while not (begun := [one for tried in attempts_of(study).values() for one in tried]):
            time.sleep(0.01)
        os.kill(begun[0].process, signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def _check(engine: Engine, study: Path, whole: Path) -> None:
    jobs = planned(study)
    killer = _kill_the_first_process(study)
    states = Driver(jobs, study, engine, Silent()).run()
    killer.join()
    assert {state.status for state in states.values()} == {JobStatus.DONE}
    run_inline(whole)
    assert_same_records(whole, study)
    attempts = attempts_of(study)
    assert all([one.outcome for one in tried].count("done") == 1 for tried in attempts.values())
    assert sorted(len(tried) for tried in attempts.values()) == [1, 1, 1, 1, 2], "one was killed and done again"
    assert {one.engine for tried in attempts.values() for one in tried} == {engine.name}


@needs_ray
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_study_on_ray(tmp_path: Path) -> None:
    from onelip.bench.engines.ray_engine import RayEngine

    _check(RayEngine(tmp_path / "study", workers=2), tmp_path / "study", tmp_path / "whole")


@needs_submitit
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_study_through_submitit(tmp_path: Path) -> None:
    engine = SlurmEngine(tmp_path / "study", SlurmRequest(), is_local=True)
    _check(engine, tmp_path / "study", tmp_path / "whole")


@needs_submitit
def test_what_is_asked_of_slurm(tmp_path: Path) -> None:
    request = SlurmRequest("gpu", "lab", "a100", 7200.0, 8)
    engine = SlurmEngine(tmp_path, request)
    cpu, timed, gpu = FakeJob("a"), FakeJob("b", alone=True), FakeJob("c", device="cuda", alone=True)
    asked = engine.parameters(gpu)
    assert (asked["slurm_partition"], asked["slurm_account"], asked["slurm_constraint"]) == ("gpu", "lab", "a100")
    assert (asked["timeout_min"], asked["cpus_per_task"], asked["gpus_per_node"]) == (120, 8, 1)
    assert "slurm_exclusive" not in asked
    assert engine.parameters(timed)["slurm_exclusive"] is True
    assert not {"slurm_exclusive", "gpus_per_node"} & engine.parameters(cpu).keys()


@needs_submitit
def test_the_signal_before_the_time_limit_stops_the_job_and_asks_for_it_again(tmp_path: Path) -> None:
    """submitit calls `checkpoint` in a signal handler, inside of the call of the task."""
    script = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); print(1, flush=True);"
        "time.sleep(60)"
    )
    output = tmp_path / "job" / "output.log"
    task = SlurmTask(JobCommand((sys.executable, "-c", script), str(output)))
    again: list[Any] = []
    before = signal.signal(signal.SIGUSR2, lambda *_: again.append(task.checkpoint()))
    try:
        threading.Thread(target=_signal_when_written, args=(output,), daemon=True).start()
        assert task() == 75
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert again[0].function.command == task.command


def _signal_when_written(output: Path) -> None:
    while not output.exists() or not output.read_text():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR2)


def test_small_jobs_share_a_gpu_unless_time_matters() -> None:
    from dataclasses import replace

    from onelip.bench.engines.resources import gpu_share

    by_epochs = {job.kind: job for job in plan(replace(OPTIONS, device="cuda"))}
    by_time = {job.kind: job for job in plan(replace(OPTIONS, device="cuda", epochs=None, budgets=("1m",)))}
    assert gpu_share(by_epochs["train"], 24) == 0.25
    assert gpu_share(by_epochs["train"]) == 1
    assert gpu_share(by_time["train"], 24) == 1, "shared, the budget would be another one"
    assert gpu_share(by_epochs["search"], 24) == 0
    assert gpu_share({job.kind: job for job in plan(OPTIONS)}["train"], 24) == 0
