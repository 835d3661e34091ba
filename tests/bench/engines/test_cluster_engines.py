"""What is asked of clusters, and how Slurm signals a job; whole studies on them are in test_faults.py."""

from __future__ import annotations

import _thread
import contextlib
import importlib.util
import os
import signal
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from fake_jobs import FakeJob
from small_study import OPTIONS

from onelip.bench.engines import ray_engine, slurm_engine
from onelip.bench.engines.engine_base import JobCommand, run_process
from onelip.bench.engines.slurm_engine import SlurmEngine, SlurmRequest, SlurmTask
from onelip.bench.study.planner import plan
from onelip.errors import InvalidInputError, OnelipError

needs_submitit = pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason='needs the extra "slurm"')


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


@needs_submitit
def test_what_is_asked_of_slurm(tmp_path: Path) -> None:
    request = SlurmRequest("gpu", "lab", "a100", 7200.0, 8)
    engine = SlurmEngine(tmp_path, request, is_local=True)
    cpu, timed, gpu = FakeJob("a"), FakeJob("b", alone=True), FakeJob("c", device="cuda", alone=True)
    asked = engine.parameters(gpu)
    assert (asked["slurm_partition"], asked["slurm_account"], asked["slurm_constraint"]) == ("gpu", "lab", "a100")
    assert (asked["timeout_min"], asked["cpus_per_task"], asked["gpus_per_node"]) == (120, 8, 1)
    assert "slurm_exclusive" not in asked
    assert engine.parameters(timed)["slurm_exclusive"] is True
    assert not {"slurm_exclusive", "gpus_per_node"} & engine.parameters(cpu).keys()
    split = SlurmEngine(tmp_path, request, gpus_per_training=4, is_local=True)
    assert split.parameters(gpu)["gpus_per_node"] == 4
    assert split.command(gpu).arguments[-2:] == ("--processes", "4")


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that keeps the scripts it is given and numbers them; refuses while the file `refuse` is there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script = f"""cd {tmp_path}
if [ -e refuse ]; then cat refuse >&2; exit 1; fi
number=$(ls script-* 2>/dev/null | wc -l)
cp $1 script-$number
echo Submitted batch job $number"""
    for name, body in {"srun": "", "sbatch": script}.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    return tmp_path


def _asked(script: Path) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@needs_submitit
def test_what_is_submitted_to_slurm(sbatch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings on four GPUs become arrays that are not too large."""
    monkeypatch.setattr(slurm_engine, "_LARGEST_ARRAY", 2)
    request = SlurmRequest("gpu", "lab", "a100", 4 * 3600.0, 8)
    engine = SlurmEngine(sbatch / "study", request, gpus_per_training=4)
    for title in "abc":
        engine.start(FakeJob(title, device="cuda"))
    engine.wait(0.0)
    asked = _asked(sbatch / "script-0")
    expected = {"gpus-per-node": "4", "nodes": "1", "cpus-per-task": "8", "requeue": "", "job-name": "onelip-train"}
    expected |= {"partition": "gpu", "account": "lab", "constraint": "a100", "time": "240", "signal": "USR2@120"}
    assert {name: asked.get(name) for name in expected} == expected
    assert asked["array"] == "0-1%2"
    assert [(sbatch / f"study/jobs/{title}/slurm_id").read_text() for title in "abc"] == ["0_0", "0_1", "1"]


@needs_submitit
def test_what_slurm_refuses(sbatch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The first time it is an error; with jobs in the queue it is tried again."""
    monkeypatch.setattr(slurm_engine, "_SECONDS_PER_QUEUE_LOOK", 0.0)
    monkeypatch.setattr(slurm_engine, "_queued", lambda: None)
    (sbatch / "refuse").write_text("sbatch: error: invalid partition specified: nope\nsbatch: error: failed\n")
    engine = SlurmEngine(sbatch / "study", SlurmRequest("nope"))
    engine.start(FakeJob("a"))
    with pytest.raises(OnelipError, match="invalid partition specified: nope"):
        engine.wait(0.0)
    assert capsys.readouterr().err == ""
    (sbatch / "refuse").unlink()
    engine.start(FakeJob("a"))
    engine.wait(0.0)
    (sbatch / "refuse").write_text("too many jobs")
    engine.start(FakeJob("b"))
    assert engine.wait(0.0) == []
    assert engine.running == 2
    (sbatch / "refuse").unlink()
    engine.wait(0.0)
    assert (sbatch / "study/jobs/b/slurm_id").exists()


@needs_submitit
def test_a_controller_that_restarts_is_waited_for(sbatch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nothing of the study is in the queue; one that answers, and refuses, is an error."""
    monkeypatch.setattr(slurm_engine, "_SECONDS_PER_QUEUE_LOOK", 0.0)
    queue: list[set[str] | None] = [set(), set()]
    monkeypatch.setattr(slurm_engine, "_queued", lambda: queue.pop(0) if queue else None)
    engine = SlurmEngine(sbatch / "study", SlurmRequest())
    engine.start(FakeJob("a"))
    ended = [one for _ in range(3) for one in engine.wait(0.0)]
    assert [(one.name, one.code) for one in ended] == [("a", None)], "it has left the queue"
    (sbatch / "refuse").write_text("Unable to contact slurm controller (connect failure)")
    engine.start(FakeJob("a"))
    assert engine.wait(0.0) == []
    assert engine.running == 1
    queue.append(set())
    with pytest.raises(OnelipError, match="Unable to contact"):
        engine.wait(0.0)


@needs_submitit
def test_no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInputError, match="--slurm-local"):
        SlurmEngine(tmp_path, SlurmRequest())


class _Ray:
    """What a `RayEngine` needs of Ray, on a cluster of two nodes; keeps what tasks ask for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def init(self, **_: Any) -> None: ...

    def shutdown(self) -> None: ...

    def nodes(self) -> list[dict[str, Any]]:
        sizes = ({"CPU": 16.0, "GPU": 4.0}, {"CPU": 32.0, "GPU": 4.0})
        return [{"Alive": True, "Resources": size} for size in sizes]

    def remote(self, function: object) -> Any:
        def options(**asked: Any) -> Any:
            self.asked.append(asked)
            return types.SimpleNamespace(remote=lambda *_: object())

        return types.SimpleNamespace(options=options)


def test_what_is_asked_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = _Ray()
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
    monkeypatch.setattr(ray_engine, "cluster_address", lambda ray, given: given)
    monkeypatch.setattr(ray_engine, "predicted_bytes", lambda job: 2**30)
    engine = ray_engine.RayEngine(tmp_path, "auto", constraint="accelerator_type:A100", gpus_per_training=2)
    count, timed = FakeJob("a", on_device=False), FakeJob("b", alone=True)
    timed_gpu, gpu = FakeJob("c", device="cuda", alone=True, kind_name="measure"), FakeJob("d", device="cuda")
    for job in (count, timed, timed_gpu, gpu, gpu):
        engine.start(job)
    assert [(asked["num_cpus"], asked["num_gpus"]) for asked in ray.asked] == [(1, 0), (32, 0), (1, 1), (1, 2), (1, 2)]
    assert [asked["scheduling_strategy"] for asked in ray.asked[-2:]] == ["DEFAULT", "SPREAD"], "elsewhere"
    assert all(asked["max_retries"] == -1 for asked in ray.asked)
    assert all("accelerator_type:A100" in asked["resources"] for asked in ray.asked)


@pytest.mark.parametrize(("slow_starts", "reason"), [(2, None), (100, "timed out"), (0, "other")])
def test_a_cluster_that_starts_slowly_is_started_again(
    slow_starts: int, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray, starts = _Ray(), iter(range(100))

    def init(**_: Any) -> None:
        if next(starts) < slow_starts:
            raise RuntimeError("The current node timed out during startup.")
        if reason is not None:
            raise RuntimeError("other")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
    with contextlib.nullcontext() if reason is None else pytest.raises(OnelipError, match=reason):
        ray_engine.RayEngine(tmp_path, workers=2)
    assert next(starts) == {2: 3, 100: 3, 0: 1}[slow_starts]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cuda", "gpus_per_training": 8}, "has 8 GPU"),
        ({"constraint": "accelerator_type:H100"}, "accelerator_type:H100"),
        ({"device": "cuda", "gpus_per_training": 4}, ""),
    ],
)
def test_what_no_node_of_ray_has_is_told(
    options: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is no error: a node that has it may join."""
    monkeypatch.setattr(ray_engine, "_import_ray", _Ray)
    monkeypatch.setattr(ray_engine, "cluster_address", lambda ray, given: given)
    ray_engine.RayEngine(tmp_path, "auto", **options)
    message = capsys.readouterr().err
    assert (said in message) if said else (message == "")


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
    _wait_until_written(output)
    os.kill(os.getpid(), signal.SIGUSR2)


def _wait_until_written(output: Path) -> None:
    while not output.exists() or not output.read_text():
        time.sleep(0.01)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["plain", "nohup"])
def test_a_cancelled_task_of_ray_lets_its_job_save(tmp_path: Path, handler: Any) -> None:
    """Ray cancels as here: the interrupt is set, and no signal wakes whoever waits in the kernel."""
    saved, output = tmp_path / "saved", tmp_path / "job" / "output.log"
    script = (
        "import pathlib, signal, sys, time;"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(saved)!r}).touch(), sys.exit(75)));"
        "print(1, flush=True); time.sleep(600)"
    )

    def cancel() -> None:
        _wait_until_written(output)
        _thread.interrupt_main()

    before = signal.signal(signal.SIGINT, handler)
    try:
        threading.Thread(target=cancel, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            run_process(JobCommand((sys.executable, "-c", script), str(output)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert saved.exists()


def test_small_jobs_share_a_gpu_unless_time_matters() -> None:
    from dataclasses import replace

    from onelip.bench.engines.engine_base import gpu_share

    by_epochs = {job.kind: job for job in plan(replace(OPTIONS, device="cuda"))}
    by_time = {job.kind: job for job in plan(replace(OPTIONS, device="cuda", epochs=None, budgets=("1m",)))}
    assert gpu_share(by_epochs["train"], 24) == 0.25
    assert gpu_share(by_epochs["train"]) == 1
    assert gpu_share(by_time["train"], 24) == 1, "shared, the budget would be another one"
    assert gpu_share(by_epochs["search"], 24) == 0
    assert gpu_share({job.kind: job for job in plan(OPTIONS)}["train"], 24) == 0
