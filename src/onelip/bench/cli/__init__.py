"""The `onelip` command: parse, call one function, exit code.

Every file in this folder that ends with `COMMAND = <class>` is the sub-command of its name: a frozen dataclass whose
fields are the options, whose docstring is the help, and whose `run()` does the work and returns the exit code. Only the
file of the command that is called is imported, so that a command costs the start of what it uses itself.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onelip.bench.cli.help_text import HelpText, captured, read_help, terminal_width
from onelip.bench.cli.parse_messages import message_of
from onelip.bench.terminal import say
from onelip.errors import InvalidInputError, OnelipError, did_you_mean
from onelip.version import __version__

_DESCRIPTION = "1-Lipschitz layers for PyTorch, certificates that hold, and their comparison."

_GROUPS = {
    "Choose a layer": ("advise", "methods", "published", "leaderboard", "theory"),
    "Train and certify": ("train", "evaluate", "search", "check", "attack", "export", "data", "runs"),
    "Compare methods": ("compare", "plan", "jobs", "job", "measure", "report", "reproduce", "paper"),
    "Your machine": ("doctor", "tune", "completion"),
}
"""Order of the commands in the help; one that is not named here is listed at the end."""

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
        say(error)
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:  # `onelip ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a path that is too long, a folder that is a file, a disk that fails
        say(f"{error.filename or 'a file'}: {error.strerror or error}")
        return 2
    except MemoryError:
        say("there is not enough memory for this")
        return 2


def _parse(arguments: list[str]) -> Runnable:
    (name, *rest), commands = arguments, command_summaries()
    if name not in commands:
        instead = did_you_mean(name, commands) or f", use one of {', '.join(commands)}"
        raise InvalidInputError(f"there is no command {name!r}{instead}; see onelip --help")
    words = [word for word in rest if word not in ("--help", "-h")]
    if words != rest and (shown := command_help(name, words)).usage:  # none where the other words are wrong
        print(shown.render(terminal_width()))
        raise SystemExit(0)
    with captured() as printed:
        try:
            found, warnings = _tyro(name, words), printed()
        except SystemExit:
            parts = [[words[0]]] if words and not words[0].startswith("-") else []
            flags = [flag for part in (*parts, []) for flag in command_help(name, part).flags]
            raise InvalidInputError(message_of(printed(), name, flags)) from None
    sys.stderr.write(warnings)  # of a command line that is good all the same
    return found


def _tyro(command: str, arguments: list[str]) -> Runnable:
    options: Any = importlib.import_module(f"{__name__}.{command}").COMMAND
    return tyro.cli(options, prog=f"onelip {command}", args=arguments, config=_STYLE)


def command_help(command: str, arguments: list[str]) -> HelpText:
    """The help of a command, or of the sub-command that `arguments` begin with."""
    return read_help(lambda: _tyro(command, [*arguments, "--help"]))


def print_help() -> None:
    """All sub-commands by what they are for, each with the first paragraph of its docstring."""
    console = Console()
    console.print(f"usage: onelip COMMAND \\[options]\n\n{_DESCRIPTION}", highlight=False)
    summaries = command_summaries()
    others = set(summaries).difference(*_GROUPS.values())
    for title, commands in {**_GROUPS, "More": tuple(sorted(others))}.items():
        if not commands:
            continue
        table = Table.grid(padding=(0, 2))
        for command in commands:
            table.add_row(f"  [bold]{command:11}[/]", escape(summaries[command]))
        console.print(f"\n{title}:", highlight=False)
        console.print(table)
    console.print("\nonelip COMMAND --help explains a command, onelip --version prints the version.", highlight=False)
