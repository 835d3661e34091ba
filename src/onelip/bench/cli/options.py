"""Options that several commands share, what is accepted for them, and how commands with sub-commands are put together.

A folder or file given as --dataset is read, kept in the cache and replaced by its name: specs, records and jobs know
names only. Commands do so once they have checked their other arguments.

Types are no texts here: cyclopts would look them up in the module of the class that inherits an option.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

from onelip.bench.cli import OPTIONS
from onelip.bench.paper.complexity import method_keys
from onelip.bench.records.data_sets import dataset_info
from onelip.bench.records.durations import parse_duration
from onelip.bench.terminal import say
from onelip.errors import InvalidInputError, OnelipError
from onelip.protocol import DATA_SETS

if TYPE_CHECKING:
    from onelip.bench.data import Dataset

_OUTPUT = Parameter(group=Group("Output", sort_key=4))


def check_names(given: str | tuple[str, ...]) -> None:
    """Refuse the name of a data set that there is not; paths are looked at when they are read."""
    for text in (given,) if isinstance(given, str) else given:
        if not is_path(text):
            dataset_info(text)


def is_path(text: str) -> bool:
    """Whether a user means a folder or a file, and not the name of a data set."""
    path = Path(text).expanduser()
    return text not in DATA_SETS and (path.exists() or path.suffix == ".npz" or "/" in text)


def dataset_name(text: str) -> str:
    """The name of the data set that a user means; a path is read, and what was found there is said on stderr."""
    if not is_path(text):
        return text
    try:
        dataset = read_path(Path(text).expanduser())
    except OnelipError as error:
        raise InvalidInputError(f"--dataset {error}") from error
    say(describe(dataset))
    return dataset.name


def read_path(path: Path) -> "Dataset":
    """The data set in a folder of images or a NumPy archive."""
    from onelip.bench.data import read_folder, read_npz

    return read_folder(path) if path.is_dir() else read_npz(path)


def describe(dataset: "Dataset") -> str:
    """One line for people: how many images of which size, and what is done with them."""
    from onelip.models.config import ConvNetConfig

    channels, height, width = dataset.info.shape
    config = ConvNetConfig(
        method="standard", size="L", num_classes=1, input_size=height, input_width=width, in_channels=channels
    )
    padded = f"; ConvNet extends them by zeros to {config.padded_size} x {config.padded_size}"
    return (
        f"{dataset.name}: {len(dataset.train_labels):,} training and {len(dataset.test_labels):,} test images in "
        f"{dataset.info.num_classes} classes, {height} x {width} pixels, {channels} channel{'s' * (channels > 1)}"
        f"{padded if any(config.image_padding) else ''}; {dataset.note}"
    )


def checked(*checks: Callable[[Any], object], **others: Any) -> Parameter:
    """A parameter whose value, if there is one, must pass; a ValueError says what is wrong with it."""

    def validate(_: object, value: Any) -> None:
        for check in checks if value is not None else ():
            check(value)

    return Parameter(validator=validate, **others)


def must(holds: Callable[[Any], object], wanted: str) -> Callable[[Any], None]:
    """The check that something holds; `wanted` is what a message says otherwise."""

    def check(value: Any) -> None:
        if not holds(value):
            raise ValueError(wanted)

    return check


def in_a_folder(path: Path) -> None:
    """Refuse a file whose folder is not there, before the work whose result is to go there."""
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}")


METHODS = Parameter(completer=lambda context: list(method_keys()))
DATASET = checked(check_names, completer=lambda context: list(DATA_SETS))
DATASETS = checked(check_names, completer=lambda context: list(DATA_SETS), alias="--dataset")
"""Where several data sets are taken, the option for one works as well."""

SWITCH = Parameter(negative=None)
"""A switch that is on by default: `--no-theory` turns it off."""
AT_LEAST_1 = checked(must(lambda number: number >= 1, "must be 1 or more"))
ODD = checked(must(lambda number: number >= 1 and number % 2 == 1, "must be odd and 1 or more"))
POSITIVE = checked(must(lambda number: 0 < number < math.inf, "must be a number above 0"))
DURATION = checked(parse_duration)
SHAPE = checked(must(lambda shape: shape and min(shape) >= 1, "give lengths of 1 or more, such as 3 32 32"))
FOLDER = checked(must(lambda path: path.is_dir() or not path.exists(), "is a file: give a folder"))
FILE = checked(in_a_folder)
FIGURE = checked(
    must(
        lambda path: path.suffix.lower() in (".png", ".svg", ".pdf"),
        "is not the name of a figure, let it end in .png, .svg, .pdf",
    ),
    in_a_folder,
)


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
