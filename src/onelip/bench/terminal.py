"""What the terminal is shown: tables in one style, and text that others wrote, which is printed and never executed.

Names, reasons and notes come from files that travel between people. An escape sequence in one would reach the terminal
as a command (it may move the cursor, or rename the window), and square brackets would be markup to rich.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

LONGEST_TEXT = 300
"""Characters of a reason or a command line that are shown."""
_LONGEST_MESSAGE = 1000


def visible(text: object, longest: int = LONGEST_TEXT) -> str:
    """One line of printable text: control characters, terminal escapes and direction marks are written out as \\x1b."""
    whole = str(text)
    cut = whole if len(whole) <= longest else whole[: longest - 1] + "…"
    spaced = " ".join(cut.split()) if any(letter in cut for letter in "\t\n\r\v\f") else cut
    return _printable(spaced)


def say(message: object) -> None:
    """One line on the error output, with the name of the program in front; of a long one both ends, not its middle."""
    text, half = str(message), _LONGEST_MESSAGE // 2
    short = text if len(text) <= _LONGEST_MESSAGE else f"{text[:half]} … {text[-half:]}"  # the reason is at the end
    print(f"onelip: {visible(short, 2 * _LONGEST_MESSAGE)}", file=sys.stderr)


class Terminal(Console):
    """rich's console for text of any origin: no markup, no highlighting, control characters written out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Text to be printed, of whole lines and of the cells of tables."""
        return super().render_str("\n".join(_printable(line) for line in text.split("\n")), **options)

    def on_broken_pipe(self) -> None:
        """Leave it to who called: rich would end the program with exit code 1."""
        raise BrokenPipeError


def plain_table(
    words: Sequence[str],
    numbers: Sequence[str] = (),
    rows: Iterable[Sequence[str]] = (),
    *,
    title: str | None = None,
    wrapped: Collection[str] = (),
    padding: int = 1,
) -> Table:
    """Columns of words on the left and of numbers on the right; only the `wrapped` ones are broken into lines."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, padding))
    for name in (*words, *numbers):
        is_wrapped = name in wrapped
        justify = "left" if name in words else "right"
        table.add_column(name, justify=justify, no_wrap=not is_wrapped, overflow="fold" if is_wrapped else "ellipsis")
    for row in rows:
        table.add_row(*row)
    return table


def _printable(line: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


BETWEEN_LINES = 5.0
"""Seconds between two lines where there is no terminal."""

Tell = Callable[[str], None]
"""Says what is being done, in place of what was said before."""


@contextmanager
def stages(quiet: bool, *, at_once: bool = True) -> Iterator[Tell]:
    """A function that is told each stage as it begins; all of it goes to the error output.

    Work that may be refused at once has no line `at_once`, so that the refusal stays the only one.
    """
    console = Terminal(stderr=True, quiet=quiet)
    if console.is_terminal:
        with console.status("") as status:
            yield lambda words: status.update(Text(_printable(words)))  # texts would be markup to a spinner
        return
    last = -BETWEEN_LINES if at_once else time.monotonic()

    def line(words: str) -> None:
        nonlocal last
        if time.monotonic() - last >= BETWEEN_LINES:
            console.print(words, soft_wrap=True)
            last = time.monotonic()

    yield line
