"""One small study on every engine, with a worker killed and then the driver, beside a second driver that ends it.

Nothing is lost, nothing is done twice, and the records are those of an undisturbed study in one process, bit by bit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import ray_cluster
import slurm_cluster
import stalling_program
import tiny_data
from small_study import COMMAND, assert_same_records, attempts_of, run_inline

from onelip.bench.records import read_record

needs_slurm = pytest.mark.skipif(slurm_cluster.why_not() is not None, reason=str(slurm_cluster.why_not()))
needs_submitit = pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason='needs the extra "slurm"')


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        tiny_data.install(patch.setattr)
        study = tmp_path_factory.mktemp("whole")
        run_inline(study)
        yield study


def stalling_environment(stalls: Path) -> dict[str, str]:
    """Of drivers and jobs whose trainings stall."""
    stalls.mkdir(exist_ok=True)
    path = os.pathsep.join([str(Path(tiny_data.__file__).parent), os.environ.get("PYTHONPATH", "")])
    # Ray starts jobs with a niceness of 15: beside a load they would take for ever.
    return {stalling_program.VARIABLE: str(stalls), "PYTHONPATH": path, "RAY_worker_niceness": "0"}


class Trial:
    """A study whose trainings stall, and its drivers."""

    def __init__(self, folder: Path, options: str, environment: Mapping[str, str] = os.environ) -> None:
        self.study, self.stalls, self._options = folder / "study", folder / "stalls", options
        self._environment = {**environment, **stalling_environment(self.stalls)}
        self.processes: list[subprocess.Popen[bytes]] = []

    def wait_for_checkpoint(self, run: str) -> None:
        """Of a run that has begun."""
        self.wait_until((self.study / "runs" / run / "checkpoint.bin").exists)

    def start_driver(self) -> subprocess.Popen[bytes]:
        program = [sys.executable, stalling_program.__file__, *COMMAND.split(), *self._options.split()]
        with (self.stalls / f"driver-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*program, "--out", str(self.study), "--checkpoint-every", "0.001s"],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def wait_for_stall(self, number: int) -> tuple[int, str]:
        """The process that has stopped itself, and its run."""
        path = self.stalls / str(number)
        self.wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
        process, run = path.read_text().split()
        return int(process), run

    def wait_until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            assert any(process.poll() is None for process in self.processes), self.outputs()
            time.sleep(0.02)

    def outputs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.stalls.glob("driver-*")))

    def slurm_id(self, run: str) -> str:
        """The number of the Slurm job that works on a run."""
        record = read_record(self.study / "runs" / run)
        return (self.study / "jobs" / str(record.job) / "slurm_id").read_text()

    def continued(self) -> set[str]:
        """Runs that began from a checkpoint."""
        path = self.stalls / "continued"
        return set(path.read_text().split()) if path.exists() else set()

    def check(self, whole: Path) -> None:
        """All records, each made once, and what they say."""
        assert_same_records(whole, self.study)
        for name, tried in attempts_of(self.study).items():
            assert [one.outcome for one in tried].count("done") == 1, f"{name}: {tried}"

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for path in self.stalls.glob("[12]"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text().split()[0]), signal.SIGKILL)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--engine local --workers 2", id="local"),
        pytest.param("--engine ray --workers 2", id="ray", marks=pytest.mark.ray),
        pytest.param("--engine slurm --slurm-local", id="slurm", marks=needs_submitit),
    ],
)
def test_killed_workers_and_drivers_lose_and_double_nothing(tmp_path: Path, whole: Path, options: str) -> None:
    trial = Trial(tmp_path, options)
    try:
        first = trial.start_driver()
        worker, run = trial.wait_for_stall(1)
        trial.wait_for_checkpoint(run)
        os.kill(worker, signal.SIGKILL)
        left, left_run = trial.wait_for_stall(2)
        trial.wait_for_checkpoint(left_run)
        second = trial.start_driver()
        first.kill()
        first.wait()
        os.kill(left, signal.SIGCONT)
        assert second.wait() == 0, trial.outputs()
    finally:
        trial.end()
    trial.check(whole)
    attempts = attempts_of(trial.study)
    assert worker in [one.process for tried in attempts.values() for one in tried if one.outcome is None], "killed"
    assert run in trial.continued(), "from its checkpoint"


@pytest.mark.ray
@pytest.mark.slow
def test_the_jobs_of_a_lost_node_continue_elsewhere(tmp_path: Path, whole: Path) -> None:
    """Two nodes of Ray train at once; all processes of one of them, its training included, are killed together."""
    with ray_cluster.ray_cluster(os.environ | stalling_environment(tmp_path / "stalls")) as cluster:
        trial = Trial(tmp_path, f"--engine ray --address {cluster.address}", cluster.environment)
        try:
            driver = trial.start_driver()
            stalled = dict(trial.wait_for_stall(number) for number in (1, 2))
            for run in stalled.values():
                trial.wait_for_checkpoint(run)
            (lost,) = stalled.keys() & set(cluster.second.processes())
            (left,) = stalled.keys() - {lost}
            cluster.second.lose()
            os.kill(left, signal.SIGCONT)
            assert driver.wait() == 0, trial.outputs()
        finally:
            trial.end()
    trial.check(whole)
    assert stalled[lost] in trial.continued(), "from its checkpoint"


@pytest.mark.slow  # Slurm lets a cancelled and a requeued job wait, three minutes in all
@needs_submitit
@needs_slurm
def test_a_study_on_a_real_slurm(tmp_path: Path, whole: Path) -> None:
    """A job is cancelled, the driver is killed, and a job is requeued in the middle."""
    with slurm_cluster.slurm_cluster() as cluster:
        trial = Trial(tmp_path, "--engine slurm --time 10m", cluster.environment)
        try:
            first = trial.start_driver()
            _, cancelled = trial.wait_for_stall(1)
            cluster.ask("scancel", trial.slurm_id(cancelled))
            _, requeued = trial.wait_for_stall(2)
            second = trial.start_driver()
            first.kill()
            first.wait()
            number = trial.slurm_id(requeued)
            cluster.ask("scontrol", "requeue", number)
            cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now")  # Slurm would wait for two minutes
            assert second.wait() == 0, trial.outputs()
        finally:
            trial.end()
    trial.check(whole)
    assert {cancelled, requeued} <= trial.continued(), "from their checkpoints"
    assert {one.engine for tried in attempts_of(trial.study).values() for one in tried} == {"slurm"}


@pytest.mark.slow  # Slurm takes a minute to miss a node
@needs_submitit
@needs_slurm
def test_the_jobs_of_a_lost_node_of_slurm_continue_elsewhere(tmp_path: Path, whole: Path) -> None:
    """Two nodes train at once; one is lost with its training, the driver is killed, and the node comes back."""
    with slurm_cluster.slurm_cluster(nodes=2) as cluster:
        trial = Trial(tmp_path, "--engine slurm --time 10m", cluster.environment)
        try:
            first = trial.start_driver()
            stalled = dict(trial.wait_for_stall(number) for number in (1, 2))
            (lost,) = stalled.keys() & set(cluster.processes("n2"))
            (left,) = stalled.keys() - {lost}
            cluster.lose("n2")
            number = trial.slurm_id(stalled[lost])
            trial.wait_until(lambda: cluster.ask("squeue", "--array", "-h", "-j", number, "-o", "%T") == "PENDING")
            cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now")  # Slurm would wait for two minutes
            second = trial.start_driver()
            first.kill()
            first.wait()
            os.kill(left, signal.SIGCONT)
            trial.wait_until(lambda: stalled[lost] in trial.continued())
            cluster.start("n2")  # not earlier: slurmctld 22.05 may crash if a job begins where it was lost
            assert second.wait() == 0, trial.outputs()
        finally:
            trial.end()
    trial.check(whole)
    assert stalled[lost] in trial.continued(), "from its checkpoint"
