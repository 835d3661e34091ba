"""The `onelip` command: parse, call one function, exit code.

Every file in this folder that defines `COMMAND` adds one sub-command: a frozen dataclass whose fields are
the options, whose docstring is the help, and whose `run()` does the work and returns the exit code. Heavy
imports belong inside `run()`, so that `onelip --help` stays quick.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pkgutil
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import tyro

from onelip.errors import InvalidInputError, OnelipError

_DESCRIPTION = """1-Lipschitz layers for PyTorch, certificates that hold, and their comparison.

See also: onelip COMMAND --help, onelip --version"""

# --json rather than --json and --no-json; --seed rather than --options.seed
_STYLE = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)


class Runnable(Protocol):
    """What a parsed sub-command can do."""

    def run(self) -> int:
        """Do the work; the returned number is the exit code."""
        ...


@dataclass(frozen=True)
class CommandInfo:
    """One sub-command: its name on the command line and the dataclass that holds its options."""

    name: str
    options: Any


def find_commands() -> list[CommandInfo]:
    """The `COMMAND` of every file in this folder, in alphabetical order."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    commands = [module.COMMAND for module in modules if hasattr(module, "COMMAND")]
    return sorted(commands, key=lambda command: command.name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Parse and run one command line; returns the exit code."""
    if arguments in (["--version"], ["-V"]):
        import onelip

        print(onelip.__version__)
        return 0
    try:
        return _parse(arguments or ["--help"]).run()
    except OnelipError as error:
        print(f"onelip: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("onelip: interrupted", file=sys.stderr)
        return 130


def _parse(arguments: list[str]) -> Runnable:
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            return _parse_or_exit(arguments)
    except SystemExit as stop:
        if stop.code in (None, 0):  # --help
            raise
        text, messages = messages.getvalue(), io.StringIO()
        raise InvalidInputError(one_line(text)) from None
    finally:
        sys.stderr.write(messages.getvalue())  # warnings of a command line that is good all the same


def _parse_or_exit(arguments: list[str]) -> Runnable:
    commands = {command.name: command for command in find_commands()}
    chosen = commands.get(arguments[0])
    if chosen is None:  # help, or a command that does not exist
        choices = _choices(commands)
        return tyro.cli(choices, prog="onelip", description=_DESCRIPTION, args=arguments, config=_STYLE)
    # Parsed on its own, so that errors suggest options of this command only.
    return tyro.cli(chosen.options, prog=f"onelip {chosen.name}", args=arguments[1:], config=_STYLE)


def _choices(commands: dict[str, CommandInfo]) -> Any:
    """All sub-commands, each with the first paragraph of its docstring: the rest is for its own help."""
    choices: Any = None
    for name, command in commands.items():
        summary = " ".join((inspect.getdoc(command.options) or "").split("\n\n")[0].split())
        described = tyro.conf.subcommand(name=name, description=summary, prefix_name=False)
        choice = Annotated[command.options, described]
        choices = choice if choices is None else choices | choice
    return choices


def one_line(box: str) -> str:
    """The text of one of tyro's error boxes as one line: frames, colours and line breaks removed.

    tyro has no public way to get at its messages before they are framed. No word inside the frame is lost.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [row.strip("│ ") for row in plain.splitlines() if not row.startswith(("╭", "╰"))]
    # A row of dashes separates two parts; other rows of one part are broken only for the width of the terminal.
    parts = [" ".join(part.split()).rstrip(".") for part in re.split(r"\n─+\n", "\n".join(rows))]
    return "; ".join(part for part in parts if part)
