"""Progress of long commands where there is no terminal: a line on the error output, none with --quiet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_study import add_training

from onelip.bench.cli import run
from onelip.bench.terminal import stages


def test_the_first_stage_is_told_at_once_and_those_that_follow_quickly_are_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((100.0, 100.0, 101.0, 106.0, 106.0))
    monkeypatch.setattr("onelip.bench.terminal.time.monotonic", lambda: next(clock))
    with stages(quiet=False) as tell:
        for words in ("first", "a second later", "six seconds later"):
            tell(words)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["first", "six seconds later"]


def test_names_of_files_are_no_markup_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with stages(quiet=False) as tell:
        tell("writing [/tmp]/[bold]x\x1b[31m.onnx")
    assert "writing [/tmp]/[bold]x\\x1b[31m.onnx" in capsys.readouterr().err


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with stages(quiet=True) as tell:
        tell("nobody hears this")
    assert capsys.readouterr() == ("", "")


def test_a_report_says_where_it_is_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_training(tmp_path / "runs", methods=("aol",), sizes=("XS",), seeds=1)
    command = ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--no-theory", "--quiet", "--json"]
    assert run(command) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    written = json.loads(captured.out)
    assert Path(written["page"]).exists()
    assert all(Path(path).exists() for path in written["tables"] + written["figures"])


def test_a_refused_study_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["report", str(tmp_path)], ["paper", "radar", "--study", str(tmp_path / "nowhere")]):
        assert run(command) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
