"""The help of a command, made readable: tyro's text without its boxes, placeholders and empty defaults.

tyro prints a group for every dataclass behind the options, with the docstring that is written for programmers, and says
`{None}|STR` and `(default: None)` where it means that an option may be left out. Its printed help is the only public
account of the options, so this file reads that text.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

_WIDE = "129"  # from 130 columns on, tyro sets boxes side by side
_COLUMN = 24
_NOTHING_TO_SAY = ("None", "False", "True", "", "''")
_PLACEHOLDERS = {"STR": "TEXT", "INT": "N", "FLOAT": "X"}


@dataclass
class OptionHelp:
    """One option: how it is written, and what it does in a list of paragraphs."""

    usage: str
    text: list[str] = field(default_factory=list)

    @property
    def flag(self) -> str:
        """`--name`, the longest way to write the option; the placeholder of a positional argument."""
        return max(re.findall(r"--?[a-z][\w-]*", self.usage), key=len, default=self.usage)


@dataclass
class HelpText:
    """What `--help` says: usage, description, groups of options by title."""

    usage: str
    description: list[str]
    groups: dict[str, list[OptionHelp]]

    @property
    def flags(self) -> list[str]:
        """All options that begin with dashes."""
        return [option.flag for group in self.groups.values() for option in group if option.flag.startswith("-")]

    def render(self, width: int) -> str:
        """The text for a terminal of this many columns."""
        parts = [*_usage_lines(self.usage, width), ""]
        for paragraph in self.description:
            parts += [*_paragraph_lines(paragraph, width), ""]
        for title, options in self.groups.items():
            parts += [f"{title}:", *(line for option in options for line in _option_lines(option, width)), ""]
        return "\n".join(parts).rstrip()


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """What is printed inside, on both streams, and read with the function that this gives, as often as one likes.

    The stream has an encoding, without which tyro draws no frames.
    """
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _WIDE
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            yield lambda: re.sub(r"\x1b\[[0-9;]*m", "", cast(io.BytesIO, output.buffer).getvalue().decode())
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)


def read_help(print_help: Callable[[], object]) -> HelpText:
    """The help that `print_help` writes before it exits; it has no options if there is an error instead."""
    with captured() as printed, contextlib.suppress(SystemExit):
        print_help()
    head, *boxes = re.split(r"^╭─ ", printed(), flags=re.MULTILINE)
    usage, _, description = head.strip().partition("\n\n")
    paragraphs = [paragraph.strip() for paragraph in description.split("\n\n")]
    groups: dict[str, list[OptionHelp]] = {}
    for box in boxes:
        title, _, body = box.partition("\n")
        groups.setdefault(_title(title), []).extend(_options(body))
    return HelpText(_plain_usage(" ".join(usage.split())), [p for p in paragraphs if p], groups)


def terminal_width() -> int:
    """Columns of the terminal, between 60 and 100: longer lines are hard to read."""
    return min(100, max(60, shutil.get_terminal_size((80, 24)).columns))


def _title(row: str) -> str:
    """`spec.network options ───╮` -> `network`; the options of the command itself are `options`."""
    name = row.split(" ─")[0].removesuffix(" options").split(".")[-1].removesuffix("-options")
    return {"positional arguments": "arguments", "spec": "training", "engine": "where jobs run"}.get(name, name)


def _options(body: str) -> Iterator[OptionHelp]:
    rows = [row.strip("│").rstrip()[1:] for row in body.splitlines() if row.startswith("│")]
    separators = [index for index, row in enumerate(rows) if row.startswith("────")]
    rows = rows[separators[0] + 1 :] if separators else rows  # in front of it: a docstring for programmers
    option: OptionHelp | None = None
    for row in rows:
        if row == "(required)":
            continue
        beginning = re.match(r"(?:  • (\S+)|(\S.*?))(?:  +(\S.*))?$", row)
        if beginning:
            if option is not None:
                yield _cleaned(option)
            option = OptionHelp(beginning[1] or beginning[2], [beginning[3] or ""])
        elif option is not None:
            option.text.append(row.strip())
    if option is not None:
        yield _cleaned(option)


def _cleaned(option: OptionHelp) -> OptionHelp:
    """Without what tells a reader nothing: None as a choice, defaults that are empty, digits of a float."""
    text = " ".join(option.text[: option.text.index("")] if "" in option.text[1:] and option.text[0] else option.text)
    text = re.sub(r"\(default: (.*?)\)$", _default, text.strip()).replace("(required)", "").strip()
    return OptionHelp(_plain_usage(option.usage), [text])


def _default(found: re.Match[str]) -> str:
    value = found[1]
    if value in _NOTHING_TO_SAY:
        return ""
    with contextlib.suppress(ValueError):
        value = f"{float(value):.4g}" if "." in value else value
    return f"Default: {value}."


def _plain_usage(usage: str) -> str:
    usage = usage.replace("{None}|", "").replace("{None,", "{").replace(",None}", "}").replace(",None,", ",")
    usage = re.sub(r"\[(\S+) \[\1 \.\.\.\]\]", r"\1 ...", usage)  # [N [N ...]]
    usage = re.sub(r"\{([^ ]+ \.\.\.)\}", r"\1", usage)  # {N ...}
    return re.sub(r"\b(STR|INT|FLOAT)\b", lambda found: _PLACEHOLDERS[found[1]], usage)


def _usage_lines(usage: str, width: int) -> list[str]:
    return textwrap.wrap(usage, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _paragraph_lines(paragraph: str, width: int) -> list[str]:
    """Words, or a command line that stays one where it is broken."""
    if paragraph.startswith("onelip ") and "  " in paragraph:  # a command and what it does, in two columns
        return [paragraph]
    command = paragraph.startswith(("Example: ", "onelip "))
    indent = "    " if command else ""
    lines = textwrap.wrap(paragraph, width - 2 * command, break_on_hyphens=False, subsequent_indent=indent)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]] if command else lines


def _option_lines(option: OptionHelp, width: int) -> Iterator[str]:
    indent = " " * _COLUMN
    lines = textwrap.wrap(option.text[0], width - _COLUMN, break_on_hyphens=False)
    start = f"  {option.usage}"
    if len(start) + 2 <= _COLUMN and lines:
        start += " " * (_COLUMN - len(start)) + lines.pop(0)
    yield from textwrap.wrap(start, width, subsequent_indent="      ", break_long_words=False, drop_whitespace=False)
    yield from (indent + line for line in lines)
