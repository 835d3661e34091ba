"""The command line of the comparison: the plan, bad input, the live view."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from fake_jobs import InlineEngine
from rich.console import Console

from onelip.bench.cli import new_app
from onelip.bench.cli import run as run_command
from onelip.bench.cli.engine_options import EngineOptions
from onelip.bench.study.job_base import JobState, JobStatus
from onelip.bench.study.live_view import LiveView, TimeLeft
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan

SMALL = ("compare", "--width", "4", "--datasets", "tiny", "--epochs", "1", "--batch-size", "32", "--measure", "none")
SMALL = (*SMALL, "--device", "cpu")


@pytest.fixture(autouse=True)
def _at_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "arguments", ["--sizes XS --batch-size 256", "--preset cpu --batch-size 256", "--preset paper --kernel-sizes 3"]
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


@pytest.mark.parametrize(("arguments", "beside"), [("--budgets 20s", 1), ("--methods aol", 0), ("--width 4", 0)])
def test_a_network_for_short_budgets_stands_beside_the_comparison(
    arguments: str, beside: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("compare", *arguments.split(), "--measure", "none") if not beside else ("compare", *arguments.split())
    assert run_command([*chosen, "--device", "cpu", "--dry-run"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["train"]]
    assert sum("fastnet" in row for row in rows) == beside


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
        ("--engine ray --no-shared-fs", "--no-shared-fs is gone: Ray needs a folder --out that all nodes see"),
        ("--engine ray --worker-dir here", "--worker-dir is gone: Ray needs a folder --out that all nodes see"),
        ("--nodes 8", "--nodes is gone with --engine simulate: use benchmarks/simulated_cluster.py"),
        ("--failures=0.1", "--failures is gone with --engine simulate: use benchmarks/simulated_cluster.py"),
        ("--engine simulate --nodes 2", "--engine simulate is gone: use --dry-run"),
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
    assert "--out file: is a file: give a folder" in capsys.readouterr().err
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text("{}")
    assert run_command(["compare"]) == 2
    assert "is not a plan of this version of onelip" in capsys.readouterr().err


def test_options_to_jobs_to_records_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_data.install(monkeypatch.setattr)
    monkeypatch.setattr(EngineOptions, "make_engine", lambda self, study, device: InlineEngine(study))
    reported: list[Path] = []
    monkeypatch.setattr("onelip.bench.cli.compare.write_study_report", lambda study, **options: reported.append(study))
    small = [*SMALL, "--out", "s"]
    assert run_command([*small, "--methods", "aol"]) == 0
    printed = capsys.readouterr()
    assert "1 of 1 jobs are done" in printed.out
    assert "[1/1] train aol" in printed.err
    assert reported == [Path("s")]

    # Again, without options: nothing is done a second time. More options add jobs.
    assert run_command(["compare", "--out", "s", "--no-report"]) == 0
    assert "[1/1]" not in capsys.readouterr().err
    assert run_command(["compare", "--out", "s", "--no-report", "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert [(row["status"], row["reason"]) for row in json.loads(printed.out)] == [("done", None)]
    assert len(reported) == 1
    assert run_command([*small, "--methods", "standard", "--no-report"]) == 0
    assert run_command(["compare", "--out", "s", "--dry-run"]) == 0
    assert "0 of 2 jobs to do" in capsys.readouterr().out

    assert run_command(["jobs", "s", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(job["status"], len(job["attempts"])) for job in listed] == [("done", 1), ("done", 1)]
    assert run_command(["jobs", "s", "--state", "failed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run_command(["jobs", "s"]) == 0
    assert "train standard" in capsys.readouterr().out
    assert run_command(["job", "s", listed[0]["name"]]) == 0
    assert run_command(["job", "s", "nothing"]) == 2
    assert run_command(["job", "nowhere", "nothing"]) == 2


def test_interrupted_and_failed_studies_say_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_data.install(monkeypatch.setattr)
    monkeypatch.setattr(EngineOptions, "make_engine", lambda self, study, device: InlineEngine(study))
    for error, code, channel in ((KeyboardInterrupt(), 130, "err"), (RuntimeError("no memory"), 1, "out")):

        def fail(*_: Any, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("onelip.bench.training.trainer.Trainer.step", fail)
        engine = "--engine ray --address auto"
        assert run_command([*SMALL, "--methods", "aol", "--no-report", *engine.split()]) == code
        printed = capsys.readouterr()
        assert f"`onelip compare --out study {engine}`" in getattr(printed, channel)
    assert "RuntimeError: no memory" in printed.out


@pytest.mark.parametrize(
    "options",
    [
        EngineOptions(),
        EngineOptions(engine="ray", address="head:6379", constraint="a b", gpu_memory=24),
        EngineOptions(engine="slurm", partition="gpu", time="4h", slurm_local=True, cpus_per_job=8),
    ],
)
def test_the_options_of_an_engine_can_be_given_again(options: EngineOptions) -> None:
    assert new_app()(["compare", *options.arguments()]).engine_options == options


def test_the_plan_has_the_hours_of_each_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onelip.bench.study.estimates._training_bytes", lambda network, batch_size, place: 24 * 2**30)
    arguments = ["compare", "--preset", "cpu", "--device", "cuda", "--methods", "aol", "soc", "standard", "--dry-run"]
    assert run_command(arguments) == 0
    printed = capsys.readouterr().out
    stages = {line.rsplit(maxsplit=2)[0].strip(): line.split()[-2:] for line in printed.splitlines() if line.strip()}
    assert stages["trial 5m"] == ["8", "0.7"], "two searches of four times five minutes"
    assert [float(word) for word in stages["train 30m"]] == [3, pytest.approx(1.5, abs=0.2)]
    assert "the largest is 24.00 GiB" in printed
    assert list(tmp_path.iterdir()) == []


def test_what_is_gone_says_what_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["plan"], ["plan", "--gpus", "8"], ["compare", "--engine=simulate"]):
        assert run_command(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is gone: use" in line
        assert "--dry-run" in line


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
    first_line = next(line for line in text.splitlines() if "[1/3]" in line)
    assert all(part in first_line for part in (first.label, "accuracy 30.0 %", "1 min 10 s"))
    second_line = next(line for line in text.splitlines() if "[2/3]" in line)
    assert all(part in second_line for part in (second.label, "failed", "out of memory"))
    live = text[text.rindex("comparing") :]
    assert "1 of 3" in live
    running = next(line for line in live.splitlines() if third.label in line)
    assert all(part in running for part in ("10 s of", "1 min 10 s", "25 %"))
    assert "1 min 20 s" in live
    assert second.label in live
    assert max(len(line) for line in live.splitlines()) <= 80


def test_plain_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    view, written, seconds = _view(monkeypatch, terminal=False)
    with view:
        view.started(view.progress.jobs[0])
        seconds[0] = 3.0
        view.ended(view.progress.jobs[0], JobState(JobStatus.DONE, None, "accuracy 30.0 %"))
    title, line = written.getvalue().splitlines()
    assert title == "comparing"
    assert all(part in line for part in ("[1/3]", view.progress.jobs[0].label, "accuracy 30.0 %", "3 s"))


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_data.install(monkeypatch.setattr)
    monkeypatch.setattr(EngineOptions, "make_engine", lambda self, study, device: InlineEngine(study))
    for free, is_told in ((0.6, True), (1.9, False), (None, False)):
        monkeypatch.setattr("onelip.bench.cli.compare.free_cores", lambda free=free: free)
        monkeypatch.setattr("onelip.bench.cli.compare.usable_cores", lambda: 2)
        assert run_command([*SMALL, "--methods", "aol", "--no-report", "--out", f"s{free}"]) == 0
        assert ("0.6 of 2 cores are free" in capsys.readouterr().err) is is_told


def test_quick_has_a_second_seed_where_there_are_cores_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for cores, extra, trainings in ((2, [], 9), (4, [], 18), (4, ["--seeds", "1"], 9)):
        monkeypatch.setattr("onelip.bench.cli.compare.usable_cores", lambda cores=cores: cores)
        monkeypatch.setattr("onelip.bench.study.live_view.predicted_bytes", lambda job: None)
        monkeypatch.setattr("onelip.bench.cli.compare.predicted_bytes", lambda job: None)
        assert run_command(["compare", "--device", "cpu", "--dry-run", *extra]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert sum(line.split()[:1] == ["train"] and "cifar10-mini" in line for line in lines) == trainings
