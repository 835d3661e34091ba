"""Commands take the options that they took at 3443ae3, in data/options.json, without those that are gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from cyclopts.argument import Argument

from onelip.bench import cli

FROZEN = json.loads((Path(__file__).parent / "data" / "options.json").read_text())


def app_of(command: str) -> App:
    app = cli.new_app()
    for word in command.split():
        app = app[word]
    return app


def facts(argument: Argument) -> dict[str, Any]:
    """What `FROZEN` has of an option."""
    text = str(argument.hint).replace("pathlib.", "").replace(" | None", "")
    known = argument.get_choices()
    kind = "str" if known else next(kind for kind in ("Path", "str", "int", "float", "bool") if kind in text)
    default = argument.field_info.default
    found: dict[str, Any] = {"type": kind}
    if argument.index is not None:
        found["positional"] = True
    if "tuple" in text:
        found["many"] = True
    if known:
        found["choices"] = sorted(known)
    if argument.required:
        found["required"] = True
    elif default not in (None, (), "") and default is not False:
        is_plain = isinstance(default, int | float)
        found["default"] = list(default) if isinstance(default, tuple) else default if is_plain else str(default)
    return found


@pytest.mark.parametrize("command", FROZEN)
def test_commands_take_the_options_that_they_took(command: str) -> None:
    arguments = {name: one for one in app_of(command).assemble_argument_collection() for name in one.names}
    for option in FROZEN[command]:
        for name in option["names"]:
            spelled = f"--{name}" if option.get("positional") else name
            found, expected = facts(arguments[spelled]), {key: option[key] for key in option if key != "names"}
            assert set(found.pop("choices", ())) >= set(expected.pop("choices", ())), (command, name)
            assert found == expected, (command, name)


SPELLINGS = {
    "several values": (
        ["measure", "time", "--methods", "aol", "lot", "--sizes", "XS", "S"],
        "networks.sizes",
        ("XS", "S"),
    ),
    "an option behind several values": (["compare", "--methods", "aol", "lot", "--dry-run"], "methods", ("aol", "lot")),
    "one of several data sets": (["compare", "--dataset", "cifar100"], "datasets", ("cifar100",)),
    "an equals sign": (["train", "--lr=0.01"], "options.lr", 0.01),
    "a number with an exponent": (["train", "--lr", "1e-3"], "options.lr", 0.001),
    "a negative number": (["train", "--lr", "-1"], "options.lr", -1.0),
    "underscores": (["train", "--weight_decay", "0"], "options.weight_decay", 0.0),
    "a switch turned off": (["train", "--no-cycle-momentum"], "options.cycle_momentum", False),
    "a switch as it is": (["train"], "options.cycle_momentum", True),
    "the word none": (["train", "--augmentation", "none"], "options.augmentation", "none"),
    "none for what may be left out": (["compare", "--measure", "none"], "measure", "none"),
    "a shape": (["export", "x", "--input-shape", "3", "32", "32"], "input_shape", (3, 32, 32)),
    "a shape in front": (["check", "--input-shape", "3", "8", "8", "--model", "m:f", "x"], "checkpoint", "x"),
    "names of runs": (["runs", "rm", "one", "two", "--yes"], "names", ("one", "two")),
    "names behind a switch": (["runs", "rm", "--yes", "one", "two"], "names", ("one", "two")),
    "an option given twice": (["train", "--seed", "1", "--seed", "2"], "options.seed", 2),
    "a path": (["data", "fetch", "cifar10", "--from", "x/y.tgz"], "source", Path("x/y.tgz")),
    "two words": (["job", "study", "train aol", "--processes", "2"], "names", ("train aol",)),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_what_people_type_is_understood_as_it_was(case: str) -> None:
    words, path, expected = SPELLINGS[case]
    found = cli.new_app()(words)
    for name in path.split("."):
        found = getattr(found, name)
    assert found == expected
