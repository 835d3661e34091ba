"""The command line of the comparison: the plan, bad input, the live view."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from rich.console import Console

from onelip.bench.cli import run as run_command
from onelip.bench.study.job_base import JobState, JobStatus
from onelip.bench.study.live_view import LiveView
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.time_left import TimeLeft


@pytest.fixture(autouse=True)
def _at_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "arguments", ["--sizes XS --batch-size 256", "--preset cpu", "--preset paper --kernel-sizes 3"]
)
def test_the_plan_fits_80_columns_and_writes_nothing(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["compare", *arguments.split(), "--device", "cpu", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert not any("…" in line for line in lines), "nothing is cut off"
    assert list(tmp_path.iterdir()) == []
    jobs = int(next(line for line in lines if "jobs to do, about" in line).split()[2])
    rows = [line for line in lines if {"XS", "S", "M", "L"} & set(line.split()[2:3])]
    trials = sum(int(line.split()[5]) for line in rows if line.split()[0] == "search")
    assert len(rows) + trials == jobs


def test_the_plan_shows_time_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", "--preset", "cpu", "--methods", "soc", "--device", "cpu", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    search = next(line.split() for line in lines if line.lstrip().startswith("search"))
    assert search[4:] == ["3", "4", "x", "5m", "20", "min", search[-1]]
    assert 0.1 < float(search[-1]) < 2  # GiB
    train = next(line for line in lines if line.lstrip().startswith("train"))
    assert "30m" in train
    assert "30 min" in train
    assert any(line.startswith("11 of 11 jobs to do, about ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--methods nothing", "nothing"),
        ("--datasets mnist", "unknown data set 'mnist'"),
        ("--budgets soon", "is not a duration"),
        ("--sizes XS --width 8", "either sizes"),
        ("--epochs 2 --budgets 1m", "either budgets"),
        ("--epochs 0", "epochs must be 1 or more"),
        ("--kernel-sizes 4", "must be odd"),
        ("--seeds 0", "1 or more"),
        ("--engine ray --checkpoint-every soon", "is not a duration"),
        ("--engine mpi", "mpi"),
        ("--engine simulate --nodes 0", "1 node"),
        ("--device cuda", "no GPU here"),
        ("--workers 0", "workers must be 1 or more"),
        ("--device tpu", "tpu"),
        ("--datasets cifar100", "onelip data fetch cifar100"),
        ("--sizes XXL", "XXL"),
    ],
)
def test_bad_input_writes_nothing(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "nowhere"))
    assert run_command(["compare", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_no_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run_command(["compare", "--out", "file"]) == 2
    assert "--out needs a folder" in capsys.readouterr().err
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text("{}")
    assert run_command(["compare"]) == 2
    assert "is not a plan of this version of onelip" in capsys.readouterr().err


def _view(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> tuple[LiveView, io.StringIO, list[float]]:
    tiny_data.install(monkeypatch.setattr)
    small: dict[str, Any] = {"methods": ("aol", "cayley", "soc"), "sizes": (), "width": 4, "datasets": ("tiny",)}
    jobs = plan(StudyOptions(**small, budgets=("1m",), batch_size=32, measure="none"))
    seconds = [0.0]
    written = io.StringIO()
    console = Console(file=written, width=80, force_terminal=terminal, markup=False, highlight=False, color_system=None)
    view = LiveView(TimeLeft(jobs, Path("nowhere"), now=lambda: seconds[0]), "comparing", console)
    return view, written, seconds


def test_the_live_view_shows_what_runs_what_failed_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    view, written, seconds = _view(monkeypatch, terminal=True)
    first, second, third = view.progress.jobs
    with view:
        view.started(first)
        seconds[0] = 70.0
        view.ended(first, JobState(JobStatus.DONE, None, "accuracy 30.0 %"))
        view.started(second)
        view.ended(second, JobState(JobStatus.FAILED, "out of memory " * 10))
        view.started(third)
        monkeypatch.setattr(type(third), "part_done", lambda self, study: 0.25)
        seconds[0] = 80.0
        view.console.print(view.render())
    text = written.getvalue()
    assert "[1/3] train aol w4 tiny 1m seed 0: accuracy 30.0 % (1 min 10 s)" in text
    assert "[2/3] train cayley w4 tiny 1m seed 0: failed: out of memory" in text
    live = text[text.rindex("comparing") :]
    assert "1 of 3" in live
    assert "▸ train soc w4 tiny 1m seed 0  10 s of about 1 min 10 s, 25 % trained" in live
    assert "1 min 20 s so far, about 1 min left" in live
    assert "failed: train cayley" in live
    assert max(len(line) for line in live.splitlines()) <= 80


def test_plain_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    view, written, seconds = _view(monkeypatch, terminal=False)
    with view:
        view.started(view.progress.jobs[0])
        seconds[0] = 3.0
        view.ended(view.progress.jobs[0], JobState(JobStatus.DONE, None, "accuracy 30.0 %"))
    assert written.getvalue() == "comparing\n[1/3] train aol w4 tiny 1m seed 0: accuracy 30.0 % (3 s)\n"
