from __future__ import annotations

import importlib
import subprocess
import sys
import types

import pytest

import onelip
from onelip.bench import cli
from onelip.errors import InvalidInputError

USAGE_ERRORS = {
    "unknown command": (["nope"], ["nope", "methods", "onelip --help"]),
    "unknown option": (["methods", "--nope"], ["--nope", "onelip methods --help"]),
    "close to an option": (["methods", "--jso"], ["--jso", "--json", "onelip methods --help"]),
    "superfluous word": (["methods", "extra"], ["extra", "onelip methods --help"]),
    "no sub-command's option": (["--json"], ["--json", "methods"]),
}


@pytest.mark.parametrize("case", USAGE_ERRORS)
def test_usage_errors_are_one_line_and_exit_code_2(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = USAGE_ERRORS[case]
    assert cli.run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("onelip: ")
    assert printed.err.count("\n") == 1
    assert all(word in printed.err for word in expected)
    assert not set(printed.err) & set("│╭╰─\x1b")


def test_suggestions_come_from_the_command_itself(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["methods", "--jso"])
    assert "onelip published" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["methods", "--help"]])
def test_help_fits_80_columns(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert not stop.value.code
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert "methods" in output


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
    script = (
        "import sys; from onelip.bench import cli; cli.run([]); print([m for m in sys.modules if 'bench.cli.' in m])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


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


def test_one_line_keeps_every_word() -> None:
    box = "\n".join(
        [
            "╭─ Value error ────╮",
            "│ \x1b[1mError\x1b[0m parsing: │",
            "│ invalid value.   │",
            "│ ──────────────── │",
            "│ Expected 1 to 3. │",
            "╰──────────────────╯",
        ]
    )
    assert cli.one_line(box) == "Error parsing: invalid value; Expected 1 to 3"
