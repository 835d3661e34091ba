"""Tables on the terminal, all in one style."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich import box
from rich.table import Table


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
