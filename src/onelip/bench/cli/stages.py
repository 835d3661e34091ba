"""Where a long command is: a spinner on a terminal, a line now and then in a pipe or a file, nothing with --quiet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onelip.bench.terminal import Terminal

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
            yield status.update
        return
    last = -BETWEEN_LINES if at_once else time.monotonic()

    def line(words: str) -> None:
        nonlocal last
        if time.monotonic() - last >= BETWEEN_LINES:
            console.print(words, soft_wrap=True)
            last = time.monotonic()

    yield line
