"""One training in two processes, as on two GPUs: gloo on a CPU stands in for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stalling_program
import tiny_data
from small_study import attempts_of, planned

from onelip.bench.records import load_records
from onelip.bench.study.attempts import ExitCode
from onelip.bench.study.job_base import JobStatus


def test_a_training_in_two_processes_of_which_one_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)
    study, stalls = tmp_path / "study", tmp_path / "stalls"
    stalls.mkdir()
    (stalls / "2").touch()  # only one of them is caught
    job = next(job for job in planned(study) if job.kind == "trial")
    path = os.pathsep.join([str(Path(tiny_data.__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, stalling_program.__file__, "job", str(study), job.name, "--processes", "2"]

    def start() -> subprocess.Popen[bytes]:
        environment = os.environ | {stalling_program.VARIABLE: str(stalls), "PYTHONPATH": path}
        return subprocess.Popen([*command, "--checkpoint-every", "0.001s"], env=environment, stderr=subprocess.DEVNULL)

    process = start()
    caught = stalls / "1"
    while not (caught.exists() and caught.read_text().endswith("\n")):
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(int(caught.read_text().split()[0]), signal.SIGKILL)
    assert process.wait() == ExitCode.DIED
    assert job.recorded(study).status is JobStatus.PENDING
    assert start().wait() == ExitCode.DONE
    (run,) = load_records(study / "runs").runs
    assert run.record.machine["device"].startswith("2 x ")
    assert run.folder.name in (stalls / "continued").read_text().split(), "from its checkpoint"
    assert [one.outcome for one in attempts_of(study)[job.name]] == ["died", "done"]
