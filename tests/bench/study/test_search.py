"""Searches: points, winners, failures, several workers, killed workers."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from tiny_data import run_spec

from onelip.atomic_files import WriteError
from onelip.bench.cli import run as run_command
from onelip.bench.cli.search import work_on
from onelip.bench.file_lock import RunLock
from onelip.bench.records import RunRecord, RunSpec, RunStatus, load_checkpoint, load_records, start_run
from onelip.bench.study.job_base import JobOptions, job_folder
from onelip.bench.study.search import GOAL, SearchConfig, SearchJob, best_trial, point, trial_rows
from onelip.bench.training import TrainOptions
from onelip.errors import InvalidInputError, OnelipError

BASE: dict[str, Any] = {"method": "aol", "width": 4, "dataset": "tiny", "batch_size": 32, "epochs": 1}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def _config(**changes: Any) -> SearchConfig:
    return SearchConfig(base=run_spec(**BASE), **changes)


def _fake_train(config: RunSpec, runs_dir: Path, options: TrainOptions) -> RunRecord:
    """A training run whose result is known: best at lr = 0.01 and a small weight decay."""
    value = math.exp(-((math.log10(config.lr) + 2) ** 2)) - 100 * (config.weight_decay or 0.0)
    with start_run(runs_dir, "train", config, job=options.job) as run:
        return run.update(status=RunStatus.FINISHED, metrics={GOAL: min(max(value, 0.0), 1.0)})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelip.bench.study.search.train", _fake_train)


def _search(config: SearchConfig, folder: Path) -> list[dict[str, Any]]:
    job = SearchJob(config)
    work_on(job, folder, JobOptions())
    return trial_rows(job, folder)


@pytest.mark.usefixtures("fake")
def test_the_search_of_the_paper(tmp_path: Path) -> None:
    job = SearchJob(_config())
    rows = _search(job.config, tmp_path)
    points = [(row["lr"], row["weight_decay"]) for row in rows]
    assert len(points) == len(set(points)) == 16
    assert all(1e-4 <= lr <= 1e-1 and 10**-5.5 <= decay <= 10**-3.5 for lr, decay in points)
    # Log-uniform: about half of the points lie below the geometric middle; and the two are independent.
    assert 3 <= sum(lr < 10**-2.5 for lr, _ in points) <= 13
    assert 3 <= sum(decay < 10**-4.5 for _, decay in points) <= 13
    ranks = [((math.log10(lr) + 4) / 3, (math.log10(decay) + 5.5) / 2) for lr, decay in points]
    assert max(abs(a - b) for a, b in ranks) > 0.2
    best = best_trial(job, tmp_path)
    assert best is not None
    assert best.metrics[GOAL] == max(row["value"] for row in rows)
    assert job.winner(tmp_path) == {"lr": best.config["lr"], "weight_decay": best.config["weight_decay"]}


def test_points_depend_on_the_seed_only() -> None:
    def points(seed: int) -> list[Any]:
        return [point(_config(trials=5, search_seed=seed), number) for number in range(5)]

    assert points(0) == points(0)
    assert not any(one in points(0) for one in points(1))


@pytest.mark.usefixtures("fake")
def test_workers_share_a_search(tmp_path: Path) -> None:
    """Another works on the second trial: the first worker does the rest and chooses nothing; the last one chooses."""
    job = SearchJob(_config(trials=3))
    lock = RunLock(job_folder(job.needs[1], tmp_path))
    assert [row["state"] for row in _search(job.config, tmp_path)] == ["complete", "running", "complete"]
    assert job.winner(tmp_path) is None
    lock.release()
    assert [row["state"] for row in _search(job.config, tmp_path)] == ["complete"] * 3
    assert job.winner(tmp_path) is not None


def test_failures_are_kept_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[float | None] = []

    def failing(config: RunSpec, runs_dir: Path, options: TrainOptions) -> RunRecord:
        calls.append(config.lr)
        if len(calls) == 1:
            with start_run(runs_dir, "train", config, job=options.job):
                raise RuntimeError("eigh did\nnot converge")
        if len(calls) == 2:
            with start_run(runs_dir, "train", config, job=options.job) as run:
                return run.update(status=RunStatus.DIVERGED, reason="the training loss is not finite")
        return _fake_train(config, runs_dir, options)

    monkeypatch.setattr("onelip.bench.study.search.train", failing)
    command = "search --method aol --width 4 --dataset tiny --batch-size 32 --epochs 1 --trials 3 --studies-dir"
    arguments = [*command.split(), str(tmp_path)]
    assert run_command(arguments) == 0
    text = capsys.readouterr().out
    assert "fail: RuntimeError" in text
    assert "diverged" in text
    assert "best: trial 2, --lr" in text
    assert run_command([*arguments, "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert [trial["state"] for trial in tree["trials"]] == ["complete", "fail", "complete"]
    assert tree["trials"][1]["reason"] == "diverged: the training loss is not finite"
    assert len(calls) == 4, "what has failed is tried again, as in a comparison, and nothing else"


def test_a_full_disk_does_not_cost_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise WriteError("no space")

    monkeypatch.setattr("onelip.bench.study.search.train", full)
    with pytest.raises(OnelipError, match="could not be written"):
        _search(_config(trials=2), tmp_path)
    monkeypatch.setattr("onelip.bench.study.search.train", _fake_train)
    assert [row["state"] for row in _search(_config(trials=2), tmp_path)] == ["complete", "complete"]


def test_a_folder_that_cannot_be_written_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_only(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("onelip.bench.file_lock.lock_file", read_only)
    command = "search --method aol --width 4 --dataset tiny --epochs 1 --trials 2 --studies-dir"
    assert run_command([*command.split(), str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Read-only file system" in line


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    """Kill -9 in the middle of a trial: the same trial continues from its checkpoint, and no point is lost."""
    config = _config(trials=2)
    config = dataclasses.replace(config, base=dataclasses.replace(config.base, epochs=4))
    command = "search --method aol --width 4 --dataset tiny --batch-size 32 --epochs 4 --trials 2 --quiet"
    arguments = [*command.split(), "--checkpoint-every", "0.001s", "--studies-dir", str(tmp_path)]
    environment = os.environ | {"TINY_KILL_AFTER": "10"}
    killed = subprocess.run([sys.executable, tiny_data.__file__, *arguments], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    folder = tmp_path / config.name
    assert [_steps_saved(run) for run in (folder / "runs").glob("train-*")] == [10]
    rows = _search(config, folder)
    assert [row["state"] for row in rows] == ["complete", "complete"]
    assert len(load_records(folder / "runs").runs) == 3, "two trials and the choice"
    fresh = _search(config, tmp_path / "again")
    assert [row["value"] for row in fresh] == [row["value"] for row in rows]


def _steps_saved(folder: Path) -> int:
    checkpoint = load_checkpoint(folder)
    return 0 if checkpoint is None else checkpoint.meta["plan"]["steps"]


def test_bad_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInputError, match=r"trials .*1 or more"):
        _config(trials=0)
    with pytest.raises(InvalidInputError, match="validation_fraction"):
        SearchConfig(base=run_spec(**BASE, validation_fraction=0.0))
    monkeypatch.setenv("WORLD_SIZE", "2")
    command = "search --method aol --width 4 --dataset tiny --epochs 1 --studies-dir"
    assert run_command([*command.split(), str(tmp_path)]) == 2
    assert "torchrun" in capsys.readouterr().err
    for gone in ("--sampler=tpe", "--pruner halving"):
        assert run_command([*command.split(), str(tmp_path), *gone.split()]) == 2
        assert f"{gone.replace('=', ' ').split()[0]} is gone" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_learning_rate_of_the_base_does_not_matter() -> None:
    assert _config().name == SearchConfig(base=run_spec(**BASE, lr=0.5, weight_decay=0.1)).name
    assert _config().name != SearchConfig(base=run_spec(**BASE | {"method": "soc"})).name
