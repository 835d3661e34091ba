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
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tyro

from onelip.errors import InvalidInputError, OnelipError

_DESCRIPTION = "1-Lipschitz layers for PyTorch, certificates that hold, and their comparison."

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
        from onelip.version import __version__

        print(__version__)
        return 0
    try:
        if arguments in ([], ["--help"], ["-h"]):
            print_help()
            return 0
        return _parse(arguments).run()
    except OnelipError as error:
        print(f"onelip: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("onelip: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `onelip ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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
    first = arguments[0]
    if first not in commands:
        raise InvalidInputError(f"there is no command {first!r}, use one of {', '.join(commands)}; see onelip --help")
    options = commands[first].options
    return tyro.cli(options, prog=f"onelip {first}", args=arguments[1:], config=_STYLE)


def print_help() -> None:
    """All sub-commands, each with the first paragraph of its docstring: the rest is for its own help."""
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for command in find_commands():
        summary = " ".join((inspect.getdoc(command.options) or "").split("\n\n")[0].split())
        table.add_row(f"  [bold]{command.name}[/]", summary)
    console = Console()
    console.print(f"usage: onelip COMMAND \\[options]\n\n{_DESCRIPTION}\n", highlight=False)
    console.print(table)
    console.print("\nonelip COMMAND --help explains a command, onelip --version prints the version.", highlight=False)


def one_line(box: str) -> str:
    """The text of one of tyro's error boxes as one line: frames, colours and line breaks removed.

    tyro has no public way to get at its messages before they are framed. No word inside the frame is lost.
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    rows = [row.strip("│ ") for row in plain.splitlines() if not row.startswith(("╭", "╰"))]
    # A row of dashes separates two parts; other rows of one part are broken only for the width of the terminal.
    parts = [" ".join(part.split()).rstrip(".") for part in re.split(r"\n─+\n", "\n".join(rows))]
    return "; ".join(part for part in parts if part)
