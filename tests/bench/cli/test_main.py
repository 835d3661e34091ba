from __future__ import annotations

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

import onelip
from onelip.bench import cli
from onelip.errors import InvalidInputError

USAGE_ERRORS = {
    "unknown command": (["zzzz"], ["zzzz", "methods", "onelip --help"]),
    "close to a command": (["trian"], ["trian", "'train'", "onelip --help"]),
    "close to a sub-command": (["measure", "tim"], ["tim", "'time'", "onelip measure --help"]),
    "close to a sub-command's option": (["measure", "time", "--bugdet", "5m"], ["--bugdet", "'--budget'"]),
    "close to a method": (["train", "--method", "bcpo", "--budget", "1m"], ["bcpo", "'bcop'"]),
    "close to a data set": (["compare", "--datasets", "cifra100"], ["cifra100", "'cifar100'"]),
    "close to a choice": (["compare", "--preset", "qick"], ["--preset", "qick", "'quick'"]),
    "no whole number": (["train", "--method", "aol", "--seed", "x"], ["--seed", "'x'", "whole number"]),
    "no number": (["train", "--method", "aol", "--lr", "x"], ["--lr", "'x'", "number"]),
    "no value": (["train", "--method"], ["--method", "value"]),
    "no argument": (["check"], ["check needs"]),
    "no such padding": (
        ["train", "--method", "aol", "--budget", "1m", "--padding-mode", "mirror"],
        ["'mirror'", "zeros"],
    ),
    "no such start": (["train", "--method", "aol", "--budget", "1m", "--init", "zero"], ["'zero'", "identity"]),
    "no device to search on": (
        ["search", "--method", "aol", "--budget", "1m", "--device", "cuda:77"],
        ["cuda:77", "cpu"],
    ),
    "no such device": (["train", "--method", "aol", "--budget", "1m", "--device", "cuda:77"], ["cuda:77", "cpu"]),
    "no device at all": (["train", "--method", "aol", "--budget", "1m", "--device", "cup"], ["'cup'", "cpu"]),
    "unknown option": (["methods", "--nope"], ["--nope", "onelip methods --help"]),
    "close to an option": (["methods", "--jso"], ["--jso", "--json", "onelip methods --help"]),
    "help on what there is not": (["published", "memory", "--help"], ["'memory'", "results", "published --help"]),
    "superfluous word": (["methods", "extra"], ["extra", "onelip methods --help"]),
    "no sub-command's option": (["--json"], ["--json", "methods"]),
}


@pytest.mark.parametrize("case", USAGE_ERRORS)
def test_usage_errors_are_one_line_exit_code_2_and_leave_nothing(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, expected = USAGE_ERRORS[case]
    assert cli.run(arguments) == 2
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("onelip: ")
    assert printed.err.count("\n") == 1
    assert all(word in printed.err for word in expected)
    assert not set(printed.err) & set("│╭╰─\x1b")
    assert not any(word in printed.err for word in ("helptext", "Error parsing", "Unrecognized", "NoneType", "STR"))


@pytest.mark.parametrize("command", ["train", "search"])
def test_data_that_are_not_here_leave_nothing(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONELIP_DATA", str(tmp_path / "no data"))
    assert cli.run([command, "--method", "aol", "--budget", "1m", "--dataset", "cifar100"]) == 2
    assert "onelip data fetch cifar100" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_suggestions_come_from_the_command_itself(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["methods", "--jso"])
    assert "onelip published" not in capsys.readouterr().err


EVERY_HELP = [[], ["--help"], ["-h"], *([command, "--help"] for command in cli.command_summaries())]


@pytest.mark.parametrize("arguments", EVERY_HELP, ids=" ".join)
def test_help_fits_80_columns_and_hides_the_parser(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert not stop.value.code
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert not any(word in output for word in ("None", "(default", "STR", "│", "spec options"))
    assert output.count("onelip") >= 1


def test_help_lists_every_command_with_its_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.run(["--help"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert {"advise", "compare", "measure", "train"} <= cli.command_summaries().keys()
    for name, summary in cli.command_summaries().items():
        options = importlib.import_module(f"onelip.bench.cli.{name}").COMMAND
        assert summary == " ".join(options.__doc__.split("\n\n")[0].split())
        assert f" {name} {summary}" in output


def test_help_imports_no_command() -> None:
    script = "import sys; from onelip.bench import cli; cli.run([]); print('onelip.bench.cli.train' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([flag]) == 0
    assert capsys.readouterr().out == f"{onelip.__version__}\n"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [(InvalidInputError("no such thing"), 2, "no such thing"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_errors_of_a_command(
    error: BaseException,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> int:
        raise error

    monkeypatch.setattr(cli, "_parse", lambda arguments: types.SimpleNamespace(run=fail))
    assert cli.run(["anything"]) == code
    assert capsys.readouterr().err == f"onelip: {text}\n"
