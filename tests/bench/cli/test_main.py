from __future__ import annotations

import os
import shlex
import subprocess
import sys
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
    "a part of a number": (["compare", "--epochs", "1.5"], ["--epochs", "'1.5'", "whole number"]),
    "a part of a number among several": (["published", "--hours", "2", "10.5"], ["--hours", "'10.5'", "whole number"]),
    "no argument": (["check"], ["check needs CHECKPOINT: File written by onelip.save_model"]),
    "a status that there is not": (["runs", "list", "--status", "done"], ["--status", "'done'", "finished"]),
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


EVERY_HELP = [[], ["--help"], ["-h"], *([command, "--help"] for command in cli.commands())]


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
    assert not any(word in output for word in ("None", "│", "spec.", "Parameters"))
    assert output.count("onelip") >= 1


def test_help_lists_every_command_with_its_summary_and_the_daily_ones_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["--help"]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    summaries = {row[0]: row[1].strip() for row in rows if len(row) == 2 and row[0] in cli.commands()}
    assert summaries == {name: text.split("\n")[0] for name, text in cli.commands().items()}  # one line for each
    titles = [row[0] for row in rows if len(row) == 1]
    assert titles.index("Daily") < titles.index("More")
    assert list(summaries)[:8] == ["compare", "train", "evaluate", "report", "measure", "advise", "data", "doctor"]


@pytest.mark.parametrize("command", sorted(cli.commands()))
def test_summaries_begin_with_a_verb_and_examples_can_be_typed(command: str) -> None:
    summary, example, *_ = cli.commands()[command].split("\n\n")
    assert summary[0].isupper()
    assert summary.endswith(".")
    assert not summary.split()[0].endswith(("s", "ing"))
    assert example.startswith("```")
    app = cli.new_app()
    for line in example.splitlines()[1:-1]:
        words = shlex.split(line.split("  ")[0].split(" | ")[0], comments=True)
        if words[0] == "onelip":
            assert app.parse_args(words[1:])[1].arguments is not None


def test_help_imports_neither_commands_nor_torch() -> None:
    script = "import sys; from onelip.bench.cli import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "onelip.bench.cli" in loaded
    assert not loaded & {"torch", "numpy", "onelip.layers", "onelip.bench.cli.train", "onelip.bench.records"}


def test_the_help_of_train_and_its_refusals_import_no_torch() -> None:
    lines = ["train --help", "train", "train --method aol --seed x", "train --method aol --dataset cifra10"]
    code = f"import sys; from onelip.bench.cli import run; print(*(run(line.split()) for line in {lines}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('torch' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("0 2 2 2\nFalse\n")
    assert "--budget" in done.stdout


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

    monkeypatch.setattr("onelip.bench.cli.methods.Command.run", lambda options: fail())
    assert cli.run(["methods"]) == code
    assert capsys.readouterr().err == f"onelip: {text}\n"


def onelip_in_a_shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = f'set -o pipefail; onelip() {{ {shlex.quote(sys.executable)} -m onelip "$@"; }}; {line}'
    everything = os.environ | {"COLUMNS": "80"} | environment
    return subprocess.run(["bash", "-c", program], capture_output=True, text=True, env=everything, check=False)


@pytest.mark.parametrize("command", ["published --hours 2 10 24", "train --help", "completion bash"])
def test_a_reader_that_has_seen_enough_is_no_error(command: str) -> None:
    done = onelip_in_a_shell(f"onelip {command} | head -n 1")
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


def test_letters_that_a_terminal_lacks_are_question_marks() -> None:
    done = onelip_in_a_shell("onelip theory", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "C = b s? c? k?" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    done = onelip_in_a_shell("onelip published > /dev/full")
    assert (done.returncode, done.stderr) == (2, "onelip: the output: No space left on device\n")


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="has no folder in which none can write")
def test_a_folder_that_cannot_be_made_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["measure", "macs", "--methods", "aol", "--width", "4", "--quiet", "--runs-dir", "/proc/runs"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("onelip: cannot write in /proc/runs/measure-")
    assert error.endswith(": it cannot be made, or is being removed\n")
