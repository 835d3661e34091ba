"""Studies that run: to a report, with failures, in several processes, killed and continued."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import study_process
import tiny_data
import torch

from onelip.bench.cli import run as run_command
from onelip.bench.runs import RunRecord, RunStatus, StoredRun, load_records, remove_run
from onelip.bench.study.jobs import Circumstances, Job, JobState, JobStatus, state_of
from onelip.bench.study.loop import Worker
from onelip.bench.study.measuring import MeasureJob
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.plan import plan
from onelip.bench.study.training import TrainJob
from onelip.bench.study.workers import Workers
from onelip.bench.training.session import Session

SMALL = "compare --width 4 --datasets tiny --epochs 2 --batch-size 32 --measure none --device cpu"
SEARCHED = f"{SMALL} --methods aol standard --search-runs 2 --checkpoint-every 0.001s --no-report"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def _quick_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without figures and the table of theory: they take seconds and are tested elsewhere."""
    monkeypatch.setattr("onelip.bench.cli.report._counted_theory", lambda: None)
    monkeypatch.setattr("onelip.bench.report.build._all_figures", lambda *_: [])


def _compare(command: str, out: Path) -> int:
    return run_command([*command.split(), "--out", str(out)])


def _stored(study: Path) -> dict[str, StoredRun]:
    places = sorted({path.parent.parent for path in study.rglob("record.json")})
    return {run.folder.name: run for place in places for run in load_records(place).runs}


def _timeless(record: RunRecord) -> dict[str, Any]:
    return {name: value for name, value in record.metrics.items() if "second" not in name}


def _failed_runs(study: Path) -> list[dict[str, str]]:
    """The table of the report."""
    text = (study / "report" / "tables" / "failed-runs.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


class _Silent:
    def __init__(self) -> None:
        self.ended_jobs: dict[str, JobState] = {}

    def started(self, job: Job) -> None:
        pass

    def ended(self, job: Job, state: JobState) -> None:
        assert job.name not in self.ended_jobs, "done twice"
        self.ended_jobs[job.name] = state


def test_a_study_from_nothing_to_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study"
    command = f"{SMALL} --methods aol standard --search-runs 2"
    assert _compare(command, study) == 0
    printed = capsys.readouterr()
    assert "3 of 3 jobs are done." in printed.out
    summary = printed.out[: printed.out.index("jobs are done.")]
    assert "certified %" in summary
    assert max(len(line) for line in summary.splitlines()) <= 80
    assert re.search(r"\[1/3\] search aol w4 tiny 2 epochs: lr ", printed.err)
    assert (study / "report" / "report.html").exists()
    runs = _stored(study)
    assert all(run.status is RunStatus.FINISHED for run in runs.values())
    final = [run.record for run in runs.values() if "diagnostics" in run.record.metrics]
    assert sorted(record.network.method for record in final) == ["aol", "standard"]
    assert all("test_certified_accuracy_36" in record.metrics for record in final)
    # The winning trial is the final training of aol: two trials, one training of standard, one record of the search.
    assert len(runs) == 4
    page = (study / "report" / "tables" / "layers.csv").read_text()
    assert "aol" in page.lower()

    # Again, without options: nothing is done a second time.
    assert _compare("compare --no-report", study) == 0
    assert "[1/3]" not in capsys.readouterr().err
    assert {name: run.record for name, run in _stored(study).items()} == {
        name: run.record for name, run in runs.items()
    }

    # More options add jobs; the old ones stay.
    assert _compare(f"{SMALL} --methods soc --no-report", study) == 0
    names = [
        job["network"]["method"]
        for job in json.loads((study / "study.json").read_text())["jobs"]
        if job["kind"] == "train"
    ]
    assert names == ["aol", "standard", "soc"]
    assert len(_stored(study)) == 5
    assert _compare("compare --dry-run", study) == 0
    assert "0 of 4 jobs to do" in capsys.readouterr().out


def _count_writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    original, count = os.fsync, [0]

    def counting(descriptor: int) -> None:
        count[0] += 1
        original(descriptor)

    monkeypatch.setattr(os, "fsync", counting)
    return count


def test_killed_five_times_it_ends_with_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        writes = _count_writes(patch)
        assert _compare(SEARCHED, tmp_path / "whole") == 0
    generator, study = random.Random(0), tmp_path / "killed"
    moments = [0, *sorted(generator.sample(range(2, int(0.9 * writes[0])), 5))]
    for before, moment in itertools.pairwise(moments):
        delay = f"{generator.uniform(0, 0.03):.4f}"
        arguments = ["kill-at", str(moment - before), delay, *SEARCHED.split(), "--out", str(study)]
        command = [sys.executable, study_process.__file__, *arguments]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert process.returncode == -signal.SIGKILL, process.stderr
    assert _compare("compare --no-report", study) == 0
    whole, killed = _stored(tmp_path / "whole"), _stored(study)
    assert whole.keys() == killed.keys()
    for name, run in whole.items():
        other = killed[name]
        assert other.folder.relative_to(study) == run.folder.relative_to(tmp_path / "whole")
        assert (other.status, other.record.config) == (run.status, run.record.config)
        assert _timeless(other.record) == _timeless(run.record)
        weights = [folder / "model.safetensors" for folder in (run.folder, other.folder)]
        assert weights[0].exists() == weights[1].exists() == (run.record.kind == "train")
        if run.record.kind == "train":
            ours, theirs = (safetensors.torch.load_file(path) for path in weights)
            assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def _fail_in_training(monkeypatch: pytest.MonkeyPatch, method: str, error: BaseException) -> None:
    original = Session.step

    def step(self: Session, *args: Any) -> float:
        if self.config.network.method == method:
            raise error
        return original(self, *args)

    monkeypatch.setattr(Session, "step", step)


@pytest.mark.usefixtures("_quick_reports")
def test_a_failing_job_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"{SMALL} --methods soc aol"
    with monkeypatch.context() as patch:
        _fail_in_training(patch, "soc", RuntimeError("eigh did\nnot converge"))
        assert _compare(command, tmp_path) == 1
    printed = capsys.readouterr()
    reason = "RuntimeError: eigh did not converge"
    assert f"train soc w4 tiny 2 epochs seed 0: failed: {reason}" in printed.err
    assert f"failed: train soc w4 tiny 2 epochs seed 0: {reason}" in printed.out
    assert "1 of 2 jobs are done, 1 failed:" in printed.out
    rows = _failed_runs(tmp_path)
    assert [row["Reason"] for row in rows] == [reason]
    assert reason in (tmp_path / "report" / "report.html").read_text()
    # The next session tries it again, and only it.
    assert _compare("compare --no-report", tmp_path) == 0
    printed = capsys.readouterr()
    assert printed.err.count("train soc") == 1
    assert "train aol" not in printed.err


@pytest.mark.usefixtures("_quick_reports")
@pytest.mark.parametrize("broken", ["evaluate_run", "diagnose"])
def test_a_training_that_cannot_be_certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ArithmeticError("no bound")

    command = f"{SMALL} --methods aol"
    with monkeypatch.context() as patch:
        patch.setattr(f"onelip.bench.study.training.{broken}", fail)
        assert _compare(command, tmp_path) == 1
    rows = _failed_runs(tmp_path)
    assert [(row["Status"], row["Reason"]) for row in rows] == [("not certified", "ArithmeticError: no bound")]
    (run,) = _stored(tmp_path).values()
    assert not any(name.startswith("test_") for name in run.record.metrics), "half an evaluation is none"
    assert _compare(f"{command} --no-report", tmp_path) == 0
    (run,) = _stored(tmp_path).values()
    assert "evaluation_failure" not in run.record.metrics
    assert "test_accuracy" in run.record.metrics


@pytest.mark.usefixtures("_quick_reports")
def test_trainings_after_a_failed_search_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _fail_in_training(monkeypatch, "aol", RuntimeError("out of memory"))
    assert _compare(f"{SMALL} --methods aol standard --search-runs 2", tmp_path) == 1
    printed = capsys.readouterr().out
    assert "none of 2 trials succeeded; the first: RuntimeError: out of memory" in printed
    assert "train aol w4 tiny 2 epochs seed 0: not run: search aol w4 tiny 2 epochs has failed" in printed
    rows = _failed_runs(tmp_path)
    never = [row for row in rows if row["Status"] == "not run"]
    assert [(row["Method"].lower(), row["Kind"]) for row in never] == [("aol", "train")]
    assert "out of memory" in never[0]["Reason"]


def test_a_training_that_diverged_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onelip.bench.training.session import DivergedError

    with monkeypatch.context() as patch:
        _fail_in_training(patch, "aol", DivergedError("the training loss is not finite"))
        assert _compare(f"{SMALL} --methods aol --no-report", tmp_path) == 1
    assert _compare("compare --no-report", tmp_path) == 1  # it would diverge again: nothing is run
    (run,) = _stored(tmp_path).values()
    assert run.status is RunStatus.DIVERGED


def test_interrupted_and_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        _fail_in_training(patch, "soc", KeyboardInterrupt())
        assert _compare(f"{SMALL} --methods aol soc cayley --no-report", tmp_path) == 130
    message = capsys.readouterr().err
    assert f"onelip: interrupted, 1 of 3 jobs are done; `onelip compare --out {tmp_path}` continues" in message
    assert sorted(run.status for run in _stored(tmp_path).values()) == [RunStatus.FINISHED, RunStatus.INTERRUPTED]
    assert _compare("compare --no-report", tmp_path) == 0
    assert "train aol" not in capsys.readouterr().err


def test_two_processes_do_no_job_twice(tmp_path: Path) -> None:
    command = [*f"{SMALL} --methods aol soc --search-runs 1 --no-report".split(), "--out", str(tmp_path)]
    processes = [
        subprocess.Popen([sys.executable, tiny_data.__file__, *command], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    labels = re.findall(r"\] (.*? epochs(?: seed 0)?): ", "".join(errors))
    assert len(labels) == len(set(labels)) == 4
    assert len(_stored(tmp_path)) == 4  # two searches with a trial each, which is the final training as well
    assert all(run.status is RunStatus.FINISHED for run in _stored(tmp_path).values())


def test_a_job_that_kills_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = (sys.executable, study_process.__file__, "worker", "aol")
    monkeypatch.setattr("onelip.bench.study.workers.WORKER", worker)
    small: dict[str, Any] = {"methods": ("aol", "soc"), "sizes": (), "width": 4, "datasets": ("tiny",)}
    options = StudyOptions(**small, epochs=1, batch_size=32, measure="none")
    observer = _Silent()
    jobs = plan(options)
    tmp_path.mkdir(exist_ok=True)
    killed = Workers([options], jobs, tmp_path, Circumstances(), 1, observer).work()
    assert list(killed) == [jobs[0].name]
    assert "signal 9 (SIGKILL)" in str(killed[jobs[0].name].reason)
    assert [state.status for state in observer.ended_jobs.values()] == [JobStatus.FAILED, JobStatus.DONE]
    assert state_of(jobs[1], tmp_path).status is JobStatus.DONE


def test_each_worker_sees_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    workers = Workers([], [], tmp_path, Circumstances("cuda"), 3, _Silent())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [workers._visible(number)["CUDA_VISIBLE_DEVICES"] for number in range(3)] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert [workers._visible(number)["CUDA_VISIBLE_DEVICES"] for number in range(3)] == ["4", "7", "4"]
    assert Workers([], [], tmp_path, Circumstances("cpu"), 3, _Silent())._visible(0) == {}


def test_short_measurements_in_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small: dict[str, Any] = {"methods": ("aol",), "sizes": (), "width": 4, "datasets": ("cifar10-mini",)}
    jobs = plan(StudyOptions(**small, epochs=3, batch_size=4, measure="short"))
    measured = [job for job in jobs if isinstance(job, MeasureJob)]
    assert [job.measurement.quantity for job in measured] == ["memory", "memory", "macs", "macs", "time"]
    chosen = [job for job in measured if job.measurement.quantity != "macs"]
    states = Worker(chosen, tmp_path, Circumstances(), _Silent()).work()
    assert {state.status for state in states.values()} == {JobStatus.DONE}
    timed = _stored(tmp_path)[chosen[-1].name].record
    assert 6 <= timed.metrics["training"]["ratio"]["count"] <= 12
    assert timed.metrics["training"]["ratio"]["high"] < math.inf
    assert timed.config["rounds"]["seconds"] == 4.0
    # What was measured tells how long epochs will take.
    (train,) = (job for job in jobs if isinstance(job, TrainJob))
    assert (train.estimated_seconds(tmp_path) or 0) > 3 * timed.metrics["seconds_per_epoch"]
    assert train.estimated_seconds(tmp_path / "elsewhere") is None

    # What does not fit is a result, not a failure.
    remove_run(tmp_path / "runs" / chosen[-1].name)
    monkeypatch.setattr("onelip.bench.measurement.measurements.available_memory", lambda device: 1000)
    states = Worker(chosen, tmp_path, Circumstances(), _Silent()).work()
    assert states[chosen[-1].name].result.startswith("does not fit: needs ")
