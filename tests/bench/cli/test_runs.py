from __future__ import annotations

import builtins
import json
import math
from pathlib import Path

import pytest

from onelip.bench.cli import run
from onelip.bench.records import NetworkSpec, RunStatus, start_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three runs in ./runs: finished, diverged, and one whose process is gone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    names = []
    for method, dataset in (("soc", "cifar10"), ("sandwich", "tiny-imagenet"), ("lot", "cifar10")):
        network = NetworkSpec(method=method, dataset=dataset)
        current = start_run(Path("runs"), "train", {"network": network, "budget": "24h", "lr": 0.1, "seed": 0})
        metrics = {"test_accuracy": 0.71234567, "test_certified_accuracy_36": 0.5, "loss": math.nan}
        if method == "soc":
            current.update(status=RunStatus.FINISHED, metrics=metrics, seconds=86_400.0)
        elif method == "sandwich":
            current.update(status=RunStatus.DIVERGED, reason="loss is [nan] at step 3", seconds=75.0)
        current.close()
        names.append(current.folder.name)
    return names


def _listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(["runs", "list", "--json", *arguments]) == 0
    return [tree["name"] for tree in json.loads(capsys.readouterr().out)["runs"]]


def test_list_fits_80_columns(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    (line,) = [line for line in lines if "train-soc" in line]
    assert "finished" in line
    assert "0.7123" in line
    assert "24h00m" in line


def test_filters(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _listed(capsys) == runs
    assert _listed(capsys, "--method", "lot", "soc") == [runs[0], runs[2]]
    assert _listed(capsys, "--dataset", "tiny-imagenet") == [runs[1]]
    assert _listed(capsys, "--status", "interrupted") == [runs[2]]
    assert _listed(capsys, "--status", "running") == []
    assert run(["runs", "list", "--status", "done"]) == 2
    assert "--status: 'done' is none of running, finished" in capsys.readouterr().err


def test_a_damaged_record_is_reported_beside_the_others(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs", runs[1], "record.json").write_text("{")
    assert run(["runs", "list", "--json"]) == 0
    captured = capsys.readouterr()
    tree = json.loads(captured.out)
    assert len(tree["runs"]) == 2
    assert len(tree["problems"]) == 1
    assert "damaged: not valid JSON" in captured.err
    assert run(["runs", "show", runs[1]]) == 2
    assert run(["runs", "rm", runs[1], "--yes"]) == 0
    assert not Path("runs", runs[1]).exists()


def test_show_by_prefix(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", "show", "train-soc", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["metrics"]["loss"] == {"$nonfinite": "nan"}
    assert tree["status"] == "finished"
    assert run(["runs", "show", "train-sand"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "loss is [nan] at step 3" in text
    assert "1m15s" in text
    assert run(["runs", "show", "train"]) == 2
    assert "3 runs begin with 'train'" in capsys.readouterr().err


def test_rm_asks(runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["n", "y"])
    monkeypatch.setattr(builtins, "input", lambda question: next(answers))
    assert run(["runs", "rm", "train-lot"]) == 1
    assert Path("runs", runs[2]).exists()
    assert run(["runs", "rm", "train-lot"]) == 0
    assert not Path("runs", runs[2]).exists()
    assert Path("runs", runs[0]).exists()


def test_rm_without_anybody_to_ask(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_terminal(question: str) -> str:
        raise EOFError

    monkeypatch.setattr(builtins, "input", no_terminal)
    assert run(["runs", "rm", "train-lot"]) == 2
    assert "use --yes" in capsys.readouterr().err
    assert Path("runs", runs[2]).exists()


def test_rm_deletes_nothing_if_one_name_is_wrong(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs", "notes").mkdir()
    for wrong in ("notes", "train-typo", "../runs", "."):
        assert run(["runs", "rm", "train-lot", wrong, "--yes"]) == 2
    assert all(Path("runs", name).exists() for name in [*runs, "notes"])
    assert run(["runs", "list", "--runs-dir", "elsewhere"]) == 2
    assert "elsewhere: no such folder of runs" in capsys.readouterr().err
