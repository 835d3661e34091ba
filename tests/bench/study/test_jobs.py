"""Jobs that really train, search and measure, in this process: results, failures, continuation."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from fake_jobs import InlineEngine

from onelip.atomic_files import WriteError
from onelip.bench.cli import run as run_command
from onelip.bench.engines.driver import Driver, Silent
from onelip.bench.records import NetworkSpec, Run, RunStatus, StoredRun, load_records, remove_run, start_run
from onelip.bench.records.machine import ENGINE_VARIABLE
from onelip.bench.study.attempts import ExitCode, attempt
from onelip.bench.study.estimates import seconds_per_epoch
from onelip.bench.study.job_base import Job, JobOptions, JobState, JobStatus
from onelip.bench.study.jobs import MeasureJob, TrainJob
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.search import GOAL
from onelip.bench.study.study_file import add_to_study
from onelip.bench.training.trainer import DivergedError, Trainer


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def _plan(**changes: Any) -> tuple[Job, ...]:
    small: dict[str, Any] = {"methods": ("aol",), "sizes": (), "width": 4, "datasets": ("tiny",), "epochs": 2}
    return plan(StudyOptions(**{**small, "batch_size": 32, "measure": "none", **changes}))


def _drive(jobs: tuple[Job, ...], study: Path, options: JobOptions | None = None) -> dict[str, JobState]:
    return Driver(jobs, study, InlineEngine(study, options), Silent()).run()


def _stored(study: Path) -> dict[str, StoredRun]:
    return {run.folder.name: run for run in load_records(study / "runs").runs}


def _fail_in_training(monkeypatch: pytest.MonkeyPatch, method: str, error: BaseException) -> None:
    original = Trainer.step

    def step(self: Trainer, *args: Any) -> float:
        if self.config.network.method == method:
            raise error
        return original(self, *args)

    monkeypatch.setattr(Trainer, "step", step)


def test_the_winning_trial_is_the_final_training(tmp_path: Path) -> None:
    jobs = _plan(search_runs=2, methods=("aol", "standard"))
    states = _drive(jobs, tmp_path)
    assert {state.status for state in states.values()} == {JobStatus.DONE}
    runs = _stored(tmp_path)
    assert len(runs) == 4, "two trials, one of which is the training of aol, one training of standard, one search"
    (search,) = (run.record for run in runs.values() if run.record.kind == "search")
    winner = runs[search.metrics["run"]].record
    assert winner.config["lr"] == search.metrics["lr"]
    assert {"test_certified_accuracy_36", "diagnostics"} <= winner.metrics.keys()
    # The record knows its job: that of the final training for the winner, that of the trial for the other.
    trained = {job.name for job in jobs if job.kind == "train"}
    trials = {job.name for job in jobs if job.kind == "trial"}
    certified = {run.record.job for run in runs.values() if "test_accuracy" in run.record.metrics}
    assert certified == trained
    assert len({run.record.job for run in runs.values()} & trials) == 1
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {attempt(job, tmp_path, JobOptions()) for job in jobs} == {ExitCode.DONE}
    again = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert again == files, "a job that is done changes no byte"
    assert winner.machine["host"]
    assert winner.machine["load"] >= 0


def test_a_failing_job_does_not_stop_the_others_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = _plan(methods=("soc", "aol"), epochs=1)
    with monkeypatch.context() as patch:
        _fail_in_training(patch, "soc", RuntimeError("eigh did\nnot converge"))
        states = _drive(jobs, tmp_path)
    assert [state.status for state in states.values()] == [JobStatus.FAILED, JobStatus.DONE]
    assert states[jobs[0].name].reason == "RuntimeError: eigh did not converge"
    assert {state.status for state in _drive(jobs, tmp_path).values()} == {JobStatus.DONE}


@pytest.mark.parametrize("broken", ["proven_metrics", "diagnose"])
def test_a_training_that_cannot_be_certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ArithmeticError("no bound")

    jobs = _plan(epochs=1)
    with monkeypatch.context() as patch:
        patch.setattr(f"onelip.bench.study.jobs.{broken}", fail)
        (state,) = _drive(jobs, tmp_path).values()
    assert state.status is JobStatus.FAILED
    assert "no bound" in str(state.reason)
    (run,) = _stored(tmp_path).values()
    assert not any(name.startswith("test_") for name in run.record.metrics), "half an evaluation is none"
    with monkeypatch.context() as patch:  # it is certified without being trained again
        _fail_in_training(patch, "aol", AssertionError("trained again"))
        (state,) = _drive(jobs, tmp_path).values()
    assert state.status is JobStatus.DONE
    (run,) = _stored(tmp_path).values()
    assert "evaluation_failure" not in run.record.metrics
    assert "test_accuracy" in run.record.metrics


def test_trainings_after_a_failed_search_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_in_training(monkeypatch, "aol", RuntimeError("out of memory"))
    jobs = _plan(search_runs=2)
    states = _drive(jobs, tmp_path)
    by_kind = {job.kind: states[job.name] for job in jobs}
    assert {state.status for state in states.values()} == {JobStatus.FAILED}
    assert "none of 2 trials succeeded" in str(by_kind["search"].reason)
    assert "out of memory" in str(by_kind["search"].reason)
    assert "search" in str(by_kind["train"].reason)


def test_divergence_is_final_for_a_training_and_a_result_for_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = _plan(epochs=1)
    with monkeypatch.context() as patch:
        _fail_in_training(patch, "aol", DivergedError("the training loss is not finite"))
        _drive(jobs, tmp_path / "train")
        trial, search, _ = _plan(epochs=1, search_runs=1)
        states = _drive((trial, search), tmp_path / "search")
    (state,) = _drive(jobs, tmp_path / "train").values()  # it would diverge again: nothing is run
    assert state.status is JobStatus.FAILED
    assert [run.status for run in _stored(tmp_path / "train").values()] == [RunStatus.DIVERGED]
    assert [state.status for state in states.values()] == [JobStatus.DONE, JobStatus.FAILED]


def test_a_training_that_is_asked_to_stop_is_continued(tmp_path: Path) -> None:
    (job,) = _plan()
    asked: list[bool] = []

    def stop_requested() -> bool:
        asked.append(True)
        return len(asked) == 5

    options = JobOptions(checkpoint_seconds=1e9, stop_requested=stop_requested)
    assert attempt(job, tmp_path, options) == ExitCode.LEFT
    assert job.recorded(tmp_path).status is JobStatus.PENDING
    assert attempt(job, tmp_path, options) == ExitCode.DONE
    assert len(asked) < 2 * 9 + 5, "it went on where it was"
    assert job.part_done(tmp_path) == 1.0


def test_a_full_disk_costs_what_was_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full from the third checkpoint on, until another node goes on with the second."""
    (job,) = _plan()
    save, steps, saved = Run.save_checkpoint, Trainer.step, itertools.count(1)
    made: list[int] = []

    def saving(self: Run, *args: Any) -> None:
        if next(saved) == 3:
            raise WriteError("cannot write checkpoint.bin: No space left on device")
        save(self, *args)

    def step(self: Trainer, *args: Any) -> float:
        made.append(1)
        return steps(self, *args)

    monkeypatch.setattr(Run, "save_checkpoint", saving)
    monkeypatch.setattr(Trainer, "step", step)
    (state,) = _drive((job,), tmp_path, JobOptions(checkpoint_seconds=0.0)).values()
    assert state.status is JobStatus.DONE
    assert len(made) == 2 * 9 + 1, "the third step was made again, and no other"


def test_clocks_that_differ_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record is written by a clock that is a day behind the one before."""
    hours = itertools.count()
    monkeypatch.setattr(
        "onelip.bench.records.record._now", lambda: f"2026-11-{28 - next(hours) % 28:02d}T00:00:00.000+00:00"
    )
    monkeypatch.setattr("time.time", lambda: -1e6 * next(hours))
    jobs = _plan(search_runs=2, epochs=1)
    assert {state.status for state in _drive(jobs, tmp_path).values()} == {JobStatus.DONE}
    monkeypatch.undo()
    tiny_data.install(monkeypatch.setattr)
    assert {state.status for state in _drive(jobs, tmp_path).values()} == {JobStatus.DONE}, "nothing is done again"
    assert len(_stored(tmp_path)) == 3


def test_a_measurement_that_failed_on_a_node_with_a_fast_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = next(job for job in _plan(measure="short", datasets=("cifar10-mini",)) if isinstance(job, MeasureJob))
    for hardware, status, clock in (("a", RunStatus.FAILED, "2030"), ("b", RunStatus.FINISHED, "2026")):
        monkeypatch.setattr("onelip.bench.records.record._now", lambda year=clock: f"{year}-01-01T00:00:00.000+00:00")
        config = {**job.measurement.config(), "hardware": hardware}
        with start_run(tmp_path / "runs", "measure", config, job=job.name) as run:
            reason = "out of memory" if status is RunStatus.FAILED else None
            run.update(
                status=status, reason=reason, metrics={"fits": True, "parameters": 1, "training": 1, "inference": 1}
            )
    assert job.recorded(tmp_path).status is JobStatus.DONE


def test_estimates_do_not_depend_on_the_times_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three measurements of one network; whichever clock is ahead, the estimate is the same."""
    network, found = NetworkSpec(method="aol", width=4, dataset="cifar10-mini"), []
    for folder, years in (("a", (2026, 2027, 2030)), ("b", (2030, 2027, 2026))):
        for year, seconds in zip(years, (1.0, 2.0, 9.0), strict=True):
            monkeypatch.setattr(
                "onelip.bench.records.record._now", lambda year=year: f"{year}-01-01T00:00:00.000+00:00"
            )
            config = {"network": network, "quantity": "time", "batch_size": 8, "fingerprint": str(seconds)}
            with start_run(tmp_path / folder / "runs", "measure", config) as run:
                run.update(status=RunStatus.FINISHED, metrics={"fits": True, "seconds_per_epoch": seconds})
        found.append(seconds_per_epoch(tmp_path / folder, network, 8))
    assert found == [2.0, 2.0]


def test_a_search_that_is_started_by_hand_before_its_trials_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would choose among the trials that it finds, and its record would be final."""
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    options = StudyOptions(
        methods=("aol",), sizes=(), width=4, datasets=("tiny",), epochs=1, batch_size=32, search_runs=2, measure="none"
    )
    jobs = plan(options)
    add_to_study(tmp_path, [options], jobs)
    first, second, search, train = jobs
    assert run_command(["job", str(tmp_path), search.name]) == 2, "no trial is there"
    assert run_command(["job", str(tmp_path), first.name]) == 0
    assert run_command(["job", str(tmp_path), search.name]) == 2, "one of two is there"
    assert run_command(["job", str(tmp_path), train.name]) == 2
    *_, too_early, untrained = capsys.readouterr().err.splitlines()
    assert second.name in too_early
    assert search.name in untrained
    assert not (tmp_path / "runs" / search.name).exists()
    assert search.recorded(tmp_path).status is JobStatus.PENDING
    assert run_command(["job", str(tmp_path), second.name]) == 0
    assert run_command(["job", str(tmp_path), search.name]) == 0
    assert search.recorded(tmp_path).status is JobStatus.DONE


@pytest.mark.parametrize("score", [math.nan, math.inf, "0.9", None, True])
def test_a_score_that_is_no_accuracy_never_wins_a_search(tmp_path: Path, score: object) -> None:
    jobs = _plan(search_runs=2, epochs=1)
    *trials, search, train = jobs
    for trial, value in zip(trials, (score, 0.25), strict=True):
        with start_run(tmp_path / "runs", "train", trial.spec, job=trial.name) as run:  # type: ignore[attr-defined]
            run.update(status=RunStatus.FINISHED, metrics={GOAL: value} if value is not None else {})
    search.run(tmp_path, JobOptions())
    (record,) = (run.record for run in _stored(tmp_path).values() if run.record.kind == "search")
    assert record.metrics["run"] == trials[1].folder(tmp_path).name  # type: ignore[union-attr]
    path = tmp_path / "runs" / search.name / "record.json"
    path.write_text(path.read_text().replace('"weight_decay"', '"weight"'))
    assert search.recorded(tmp_path).status is JobStatus.FAILED, "and an odd record of a search names itself"
    assert train.recorded(tmp_path).status is JobStatus.PENDING


def test_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = _plan(datasets=("cifar10-mini",), epochs=3, batch_size=4, measure="short")
    measured = [job for job in jobs if isinstance(job, MeasureJob)]
    assert [job.measurement.quantity for job in measured] == ["memory", "memory", "macs", "macs", "time"]
    assert [job.runs_alone for job in measured] == [False, False, False, False, True]
    memory, timed = measured[1], measured[-1]
    states = _drive((memory, timed), tmp_path)
    assert {state.status for state in states.values()} == {JobStatus.DONE}
    (record,) = (run.record for run in _stored(tmp_path).values() if run.record.job == timed.name)
    assert 6 <= record.metrics["training"]["ratio"]["count"] <= 12
    assert record.metrics["training"]["ratio"]["high"] < math.inf
    # What was measured tells how long epochs will take.
    (train,) = (job for job in jobs if isinstance(job, TrainJob))
    assert (train.estimated_seconds(tmp_path) or 0) > 3 * record.metrics["seconds_per_epoch"]
    assert train.estimated_seconds(tmp_path / "elsewhere") is None

    # What does not fit is a result, not a failure.
    remove_run(tmp_path / "runs" / record.name)
    monkeypatch.setattr("onelip.bench.measurement.measurements.available_memory", lambda device: 1000)
    (state,) = _drive((timed,), tmp_path).values()
    assert state.status is JobStatus.DONE
    assert "does not fit" in state.result
