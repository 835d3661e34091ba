"""The `onelip` command: parse, call one function, exit code.

Every file in this folder with a `Command` is the sub-command of its name, and its docstring is the help. `Command` is a
frozen dataclass, whose fields are the options and whose `run()` does the work and returns the exit code, or a cyclopts
`App` of such classes. Only the file of the command that is called is imported, so that a command costs
the start of what it uses itself.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from cyclopts import App, CoercionError, CycloptsError, Group, Parameter, Token, convert
from cyclopts.help import DefaultFormatter, PanelSpec
from rich import box

from onelip.bench.cli.messages import message_of
from onelip.bench.terminal import Terminal, say
from onelip.errors import InvalidInputError, OnelipError, did_you_mean
from onelip.version import __version__

_HELP = """1-Lipschitz layers for PyTorch, certificates that hold, and their comparison.

```
onelip doctor     # what is installed, and does it work?
onelip advise     # which layer should I use?
onelip compare    # 8 methods side by side, in 6 minutes
onelip train --method soc --dataset cifar10-mini --budget 1m
```

`onelip COMMAND --help` explains a command, `onelip --version` prints the version.
"""

OPTIONS = Group("Options", sort_key=3)
_DAILY = ("compare", "train", "evaluate", "report", "measure", "advise", "data", "doctor")
"""The commands that the help lists first, in this order."""

_NO_SIMULATION = "is gone with --engine simulate: use benchmarks/simulated_cluster.py"
_SHARED_FOLDER = "is gone: Ray needs a folder --out that all nodes see"
_DROPPED = {
    "plan": "is gone: use `onelip compare --preset paper --dry-run`, which has the hours of each stage",
    "tune": "is gone: it gained too little, and every machine has the built-in values",
    "compare --engine simulate": "is gone: use --dry-run, or benchmarks/simulated_cluster.py",
    **dict.fromkeys(("compare --nodes", "compare --gpus-per-node", "compare --failures"), _NO_SIMULATION),
    **dict.fromkeys(("compare --no-shared-fs", "compare --worker-dir"), _SHARED_FOLDER),
    "search --sampler": "is gone: the points of a search are random, as in the paper; leave it out",
    "search --pruner": "is gone: trials are trained to their end, as in the paper; leave it out",
}
"""What was there in the version before: a command, or an option behind one."""


def commands() -> dict[str, str]:
    """Every command and its help, by the source: nothing is imported for it."""
    files = {file.stem: file.read_text("utf-8") for file in sorted(Path(__file__).parent.glob("[a-z]*.py"))}
    return {
        name: source.split('"""')[1]
        for name, source in files.items()
        if re.search("^(class )?Command\\b", source, re.M)
    }


def new_app() -> App:
    """The whole command line; a command is imported when it is called, or asked for its options."""
    app = App(
        name="onelip",
        help=_HELP,
        help_format="markdown",
        help_formatter=DefaultFormatter(panel_spec=PanelSpec(box=box.SIMPLE)),
        version=__version__,
        version_flags=("--version", "-V"),
        default_parameter=Parameter(
            negative=(),
            consume_multiple=True,
            allow_repeating=True,
            show_default=_shown_default,
            converter=_converted,
        ),
        group_parameters=OPTIONS,
        console=Terminal(width=min(100, max(60, shutil.get_terminal_size((80, 24)).columns))),
        print_error=False,
        exit_on_error=False,
        result_action="return_value",
    )
    app["--help"].show = app["--version"].show = False
    daily, more = Group("Daily", sort_key=1), Group("More", sort_key=2)
    for name, text in commands().items():
        place: dict[str, Any] = {"group": more}
        if name in _DAILY:
            place = {"group": daily, "sort_key": _DAILY.index(name)}
        app.command(f"{__name__}.{name}:Command", name=name, help=text, **place)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack a letter, such as ö or ², and gets a ? for it
            stream.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Parse and run one command line; returns the exit code."""
    try:
        _refuse_dropped(arguments)
        known = commands()
        if arguments and arguments[0] not in ("--help", "-h", "--version", "-V", "__complete", *known):
            instead = did_you_mean(arguments[0], known) or f", use one of {', '.join(known)}"  # cyclopts imports all
            raise InvalidInputError(f"there is no command {arguments[0]!r}{instead}; see onelip --help")
        options = new_app()(arguments)
        code = 0 if options is None else options.run()  # none after a help text
        sys.stdout.flush()  # a reader that has gone is met here, not when Python ends
        return code
    except CycloptsError as error:
        say(message_of(error))
        return 2
    except OnelipError as error:
        say(error)
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:  # `onelip ... | head`: the reader has seen enough
        _drop_unwritten_output()
        return 0
    except OSError as error:  # a path that is too long, a folder that is a file, a disk that fails
        say(f"{error.filename or 'the output'}: {error.strerror or error}")
        _drop_unwritten_output()
        return 2
    except MemoryError:
        say("there is not enough memory for this")
        return 2


def _refuse_dropped(arguments: Sequence[str]) -> None:
    """Say what to use in place of what is gone."""
    command, line = arguments[:1], f"{' '.join(arguments[1:]).replace('=', ' ')} "
    for gone, instead in _DROPPED.items():
        name, _, option = gone.partition(" ")
        if command == [name] and f"{option} " in line:
            raise InvalidInputError(f"{option or name} {instead}")


def _drop_unwritten_output() -> None:
    """Write what is left in the buffer, or forget it: Python would try again at its end, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _converted(kind: Any, tokens: Sequence[Token]) -> Any:
    """As cyclopts does, but it would round 1.5 to a whole number."""
    if int in (kind, *get_args(kind)):
        for token in tokens:
            if "." in token.value:
                raise CoercionError(token=token, target_type=int)
    return convert(kind, tokens)


def _shown_default(value: object) -> str | None:
    """Defaults that tell something: no empty ones, no switches."""
    if value in (None, "", ()) or isinstance(value, bool):
        return None
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
