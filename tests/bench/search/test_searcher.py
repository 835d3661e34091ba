"""Searches: points, winners, failures, several workers, killed workers."""

from __future__ import annotations

import dataclasses
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

from onelip.bench.cli import run as run_command
from onelip.bench.runs import RunSpec, RunStatus, load_checkpoint, load_records, new_record
from onelip.bench.search.searcher import SPACE, SearchConfig, best_trial, open_study, search
from onelip.bench.training import StopTraining, TrainOptions
from onelip.errors import InvalidInputError, OnelipError

BASE: dict[str, Any] = {"method": "aol", "width": 4, "dataset": "tiny", "batch_size": 32, "epochs": 1}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_data.install(monkeypatch.setattr)


def _config(**changes: Any) -> SearchConfig:
    return SearchConfig(base=run_spec(**BASE), **changes)


def _fake_train(config: RunSpec, runs_dir: Path, options: TrainOptions) -> Any:
    """A training run whose result is known: best at lr = 0.01 and a small weight decay."""
    value = math.exp(-((math.log10(config.settings.lr) + 2) ** 2)) - 100 * (config.weight_decay or 0.0)
    record = new_record("train", config)
    try:
        for fraction in (0.12, 0.34, 1.0):
            options.on_validation(fraction, {"validation_certified_accuracy_36": value * fraction})
    except StopTraining as stop:
        return record.changed(status=RunStatus.PRUNED, reason=str(stop))
    metrics = {"validation_certified_accuracy_36": value}
    return record.changed(status=RunStatus.FINISHED, metrics=metrics)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelip.bench.search.searcher.train", _fake_train)


@pytest.mark.usefixtures("fake")
def test_the_search_of_the_paper(tmp_path: Path) -> None:
    study = search(_config(), tmp_path)
    points = [(trial.params["lr"], trial.params["weight_decay"]) for trial in study.trials]
    assert len(points) == len(set(points)) == 16
    assert all(1e-4 <= lr <= 1e-1 and 10**-5.5 <= decay <= 10**-3.5 for lr, decay in points)
    # Log-uniform: about half of the points lie below the geometric middle; and the two are independent.
    assert 3 <= sum(lr < 10**-2.5 for lr, _ in points) <= 13
    assert 3 <= sum(decay < 10**-4.5 for _, decay in points) <= 13
    ranks = [((math.log10(lr) + 4) / 3, (math.log10(decay) + 5.5) / 2) for lr, decay in points]
    assert max(abs(a - b) for a, b in ranks) > 0.2
    best = best_trial(study)
    assert best is not None
    assert best.value == max(trial.value for trial in study.trials if trial.value is not None)


@pytest.mark.usefixtures("fake")
def test_points_depend_on_the_seed_only(tmp_path: Path) -> None:
    first, again, other = (
        [trial.params for trial in search(_config(trials=5, search_seed=seed), tmp_path / folder).trials]
        for seed, folder in ((0, "a"), (0, "b"), (1, "c"))
    )
    assert first == again
    assert not any(point in first for point in other)


@pytest.mark.usefixtures("fake")
def test_workers_share_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second worker joins in the middle of every trial of the first, as if both ran at once."""
    config = _config(trials=6)

    def joined(run_config: RunSpec, runs_dir: Path, options: TrainOptions) -> Any:
        study = open_study(config, tmp_path)
        if len(study.trials) < config.trials:
            other = study.ask(dict(SPACE))
            study.tell(other, 0.0)
        return _fake_train(run_config, runs_dir, options)

    monkeypatch.setattr("onelip.bench.search.searcher.train", joined)
    trials = search(config, tmp_path).trials
    assert len(trials) == 6
    assert len({trial.params["lr"] for trial in trials if trial.params}) == sum(bool(trial.params) for trial in trials)


@pytest.mark.usefixtures("fake")
def test_tpe_learns_and_does_not_repeat(tmp_path: Path) -> None:
    study = search(_config(trials=30, sampler="tpe"), tmp_path)
    rates = [trial.params["lr"] for trial in study.trials]
    assert len(set(rates)) == 30
    late = [abs(math.log10(rate) + 2) for rate in rates[15:]]
    assert sum(late) / len(late) < 0.7  # random points would be 0.83 away from the best


@pytest.mark.usefixtures("fake")
def test_successive_halving(tmp_path: Path) -> None:
    study = search(_config(pruner="halving"), tmp_path)
    states = [trial.state.name for trial in study.trials]
    assert states.count("PRUNED") >= 5
    assert states.count("COMPLETE") >= 1
    pruned = [t.intermediate_values for t in study.trials if t.state.name == "PRUNED"]
    assert all(set(values) <= {12, 34} for values in pruned)


def test_failures_are_kept_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def failing(config: RunSpec, runs_dir: Path, options: TrainOptions) -> Any:
        calls.append(config.lr)
        if len(calls) == 1:
            raise RuntimeError("eigh did\nnot converge")
        if len(calls) == 2:
            record = new_record("train", config)
            return record.changed(status=RunStatus.DIVERGED, reason="the training loss is not finite")
        return _fake_train(config, runs_dir, options)

    monkeypatch.setattr("onelip.bench.search.searcher.train", failing)
    arguments = [
        "search",
        "--method",
        "aol",
        "--width",
        "4",
        "--dataset",
        "tiny",
        "--batch-size",
        "32",
        "--epochs",
        "1",
        "--trials",
        "3",
    ]
    assert run_command([*arguments, "--studies-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "fail: RuntimeError" in text
    assert "diverged" in text
    assert "best: trial 2, --lr" in text
    assert run_command([*arguments, "--studies-dir", str(tmp_path), "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert [trial["state"] for trial in tree["trials"]] == ["fail", "fail", "complete"]
    assert tree["trials"][0]["reason"] == "RuntimeError: eigh did not converge"
    assert len(calls) == 3  # the second command ran nothing again


def test_a_full_disk_does_not_cost_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(config: RunSpec, runs_dir: Path, options: TrainOptions) -> Any:
        raise OnelipError("no space")

    monkeypatch.setattr("onelip.bench.search.searcher.train", full)
    with pytest.raises(OnelipError, match="no space"):
        search(_config(trials=2), tmp_path)
    monkeypatch.setattr("onelip.bench.search.searcher.train", _fake_train)
    study = search(_config(trials=2), tmp_path)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    """Kill -9 in the middle of a trial: the same trial continues from its checkpoint, and no point is lost."""
    config = _config(trials=2)
    config = dataclasses.replace(config, base=dataclasses.replace(config.base, epochs=4))
    command = "search --method aol --width 4 --dataset tiny --batch-size 32 --epochs 4 --trials 2 --quiet"
    arguments = [*command.split(), "--checkpoint-every", "0.001s", "--studies-dir", str(tmp_path)]
    environment = os.environ | {"TINY_KILL_AFTER": "10"}
    killed = subprocess.run([sys.executable, tiny_data.__file__, *arguments], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    runs = tmp_path / config.name / "runs"
    assert [_steps_saved(folder) for folder in runs.glob("*")] == [10]
    before = open_study(config, tmp_path).trials
    assert [trial.state.name for trial in before] == ["RUNNING"]
    study = search(config, tmp_path)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]
    assert [trial.params for trial in study.trials][: len(before)] == [trial.params for trial in before]
    assert len(load_records(runs).runs) == 2
    fresh = search(config, tmp_path / "again")
    assert [trial.value for trial in fresh.trials] == [trial.value for trial in study.trials]


def _steps_saved(folder: Path) -> int:
    checkpoint = load_checkpoint(folder)
    return 0 if checkpoint is None else checkpoint.meta["plan"]["steps"]


def test_bad_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match=r"trials .*1 or more"):
        _config(trials=0)
    with pytest.raises(InvalidInputError, match="validation_fraction"):
        SearchConfig(base=run_spec(**BASE, validation_fraction=0.0))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidInputError, match="torchrun"):
        search(_config(), tmp_path)


def test_learning_rate_of_the_base_does_not_matter() -> None:
    assert _config().name == SearchConfig(base=run_spec(**BASE, lr=0.5, weight_decay=0.1)).name
    assert _config().name != SearchConfig(base=run_spec(**BASE | {"method": "soc"})).name
