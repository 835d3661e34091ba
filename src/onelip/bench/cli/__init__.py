"""The `onelip` command: parse, call one function, exit code.

Every file in this folder that ends with `COMMAND = <class>` is the sub-command of its name: a frozen dataclass whose
fields are the options, whose docstring is the help, and whose `run()` does the work and returns the exit code. Only the
file of the command that is called is imported, so that a command costs the start of what it uses itself.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onelip.errors import InvalidInputError, OnelipError
from onelip.version import __version__

_DESCRIPTION = "1-Lipschitz layers for PyTorch, certificates that hold, and their comparison."

# --json rather than --json and --no-json; --seed rather than --options.seed
_STYLE = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)


class Runnable(Protocol):
    """What a parsed sub-command can do."""

    def run(self) -> int:
        """Do the work; the returned number is the exit code."""
        ...


def command_summaries() -> dict[str, str]:
    """Every command and the first paragraph of its help, by the source: nothing is imported for it."""
    found: dict[str, str] = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        body = ast.parse(file.read_text("utf-8")).body
        match body[-1]:
            case ast.Assign(targets=[ast.Name("COMMAND")], value=ast.Name(name)):
                [options] = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
                found[file.stem] = " ".join((ast.get_docstring(options) or "").split("\n\n")[0].split())
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Parse and run one command line; returns the exit code."""
    if arguments in (["--version"], ["-V"]):
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
    first, commands = arguments[0], command_summaries()
    if first not in commands:
        raise InvalidInputError(f"there is no command {first!r}, use one of {', '.join(commands)}; see onelip --help")
    options: Any = importlib.import_module(f"{__name__}.{first}").COMMAND
    return tyro.cli(options, prog=f"onelip {first}", args=arguments[1:], config=_STYLE)


def print_help() -> None:
    """All sub-commands, each with the first paragraph of its docstring: the rest is for its own help."""
    table = Table.grid(padding=(0, 2))
    for command, summary in command_summaries().items():
        table.add_row(f"  [bold]{command}[/]", escape(summary))
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
