"""Options that several commands share, what is accepted for them, and how commands with sub-commands are put together.

Types are no texts here: cyclopts would look them up in the module of the class that inherits an option.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from onelip.bench.cli import OPTIONS
from onelip.bench.cli.data_argument import check_names
from onelip.bench.paper.complexity import method_keys
from onelip.bench.records.durations import parse_duration
from onelip.protocol import DATA_SETS

_OUTPUT = Parameter(group=Group("Output", sort_key=4))
FIGURE_FORMATS = (".png", ".svg", ".pdf")


def checked(*checks: Callable[[Any], object], **others: Any) -> Parameter:
    """A parameter whose value, if there is one, must pass; a ValueError says what is wrong with it."""

    def validate(_: object, value: Any) -> None:
        for check in checks if value is not None else ():
            check(value)

    return Parameter(validator=validate, **others)


def _at_least_1(number: int) -> None:
    if number < 1:
        raise ValueError("must be 1 or more")


def _odd(number: int) -> None:
    if number < 1 or number % 2 == 0:
        raise ValueError("must be odd and 1 or more")


def _positive(number: float) -> None:
    if not 0 < number < math.inf:
        raise ValueError("must be a number above 0")


def _shape(lengths: tuple[int, ...]) -> None:
    if not lengths or min(lengths) < 1:
        raise ValueError("give lengths of 1 or more, such as 3 32 32")


def in_a_folder(path: Path) -> None:
    """Refuse a file whose folder is not there, before the work whose result is to go there."""
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}")


def _no_file(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ValueError("is a file: give a folder")


def _figure(path: Path) -> None:
    if path.suffix.lower() not in FIGURE_FORMATS:
        raise ValueError(f"is not the name of a figure, let it end in {', '.join(FIGURE_FORMATS)}")


METHODS = Parameter(completer=lambda context: list(method_keys()))
DATASET = checked(check_names, completer=lambda context: list(DATA_SETS))
DATASETS = checked(check_names, completer=lambda context: list(DATA_SETS), alias="--dataset")
"""Where several data sets are taken, the option for one works as well."""

SWITCH = Parameter(negative=None)
"""A switch that is on by default: `--no-theory` turns it off."""
AT_LEAST_1 = checked(_at_least_1)
ODD = checked(_odd)
POSITIVE = checked(_positive)
DURATION = checked(parse_duration)
SHAPE = checked(_shape)
FOLDER = checked(_no_file)
FILE = checked(in_a_folder)
FIGURE = checked(_figure, in_a_folder)


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """The option of commands that show their progress."""

    quiet: Annotated[bool, _OUTPUT] = False
    """Show no progress."""


@dataclass(frozen=True, kw_only=True)
class Json:
    """The option of commands that print tables."""

    json: Annotated[bool, _OUTPUT] = False
    """Print JSON in place of tables."""


@dataclass(frozen=True, kw_only=True)
class Output(Json, Quiet):
    """The options of commands that take a while and print tables."""


@dataclass(frozen=True, kw_only=True)
class RunsFolder:
    """Where commands look for runs."""

    runs_dir: Path = Path("runs")
    """Folder with one sub-folder per run."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """Where one training or evaluation computes."""

    device: str | None = None
    """cpu, cuda, cuda:1, ...; by default a GPU where there is one."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints(Device):
    """Where and how safely commands train."""

    checkpoint_every: Annotated[str, DURATION] = "1m"
    """Time between checkpoints; a kill costs at most that much work."""


def sub_commands(name: str, **commands: type) -> App:
    """A command with sub-commands, listed in this order."""
    app = App(name=name, group_parameters=OPTIONS)
    for place, (word, options) in enumerate(commands.items()):
        app.command(options, name=word, sort_key=place)
    return app
