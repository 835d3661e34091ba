"""A table as data: columns, and cells with a text to show and a value to sort by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from onelip.bench.report.style import BASELINES, method_style, slug
from onelip.bench.report.summaries import Spread

NOTHING = "-"


@dataclass(frozen=True)
class Column:
    """Heading, group heading above it, and whether the cells are numbers (aligned right)."""

    title: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """What is shown, what it sorts by and stands in the CSV file, its spread, and whether it is best."""

    text: str
    value: float | str | None = None
    deviation: float | None = None
    best: bool = False
    method: str = ""


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """One table; `name` is its file name, `section` where the page shows it."""

    name: str
    section: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", slug(self.name))


def text(value: object) -> Cell:
    """A cell with words."""
    shown = NOTHING if value in (None, "") else str(value)
    return Cell(shown, "" if value is None else str(value))


def method(key: str) -> Cell:
    """The name of a method, with its colour in the page."""
    return Cell(method_style(key).label, key, method=key)


def number(value: float | None, form: Callable[[float], str] = "{:.3g}".format) -> Cell:
    """A number; nothing, NaN and infinity are dashes without a value."""
    if value is None or not math.isfinite(value):
        return Cell(NOTHING)
    return Cell(form(value), value)


def percent(value: Spread | float | None) -> Cell:
    """A fraction in per cent with one decimal, with the deviation over seeds where there is one."""
    if value is None:
        return Cell(NOTHING)
    if not isinstance(value, Spread):
        return Cell(f"{100 * value:.1f}", round(100 * value, 6))
    mean = round(100 * value.mean, 6)
    if value.deviation is None:
        return Cell(f"{mean:.1f}", mean)
    deviation = round(100 * value.deviation, 6)
    return Cell(f"{mean:.1f} ± {deviation:.1f}", mean, deviation)


def with_best(
    rows: Sequence[Row], columns: Iterable[int], *, lowest: bool = False, same: Callable[[Row], object] = lambda row: 0
) -> tuple[Row, ...]:
    """Mark the best cell (in a tie, as shown, all of them) of each column among rows that are the `same`.

    Where all show the same number none is best.

    The plain baselines take no part: they give no guarantee, so being cheaper or more accurate is no merit.
    """
    marked = [list(row) for row in rows]
    for column in columns:
        groups: dict[object, list[int]] = {}
        for index, row in enumerate(rows):
            if isinstance(row[column].value, float | int) and not any(cell.method in BASELINES for cell in row):
                groups.setdefault(same(row), []).append(index)
        for members in groups.values():
            sign = -1 if lowest else 1
            best = max(members, key=lambda i: sign * _numeric(rows[i][column]))
            mean = rows[best][column].text.split(" ")[0]
            winners = [index for index in members if rows[index][column].text.split(" ")[0] == mean]
            for index in winners if len(winners) < len(members) else ():
                marked[index][column] = replace(rows[index][column], best=True)
    return tuple(tuple(row) for row in marked)


def _numeric(cell: Cell) -> float:
    return float(cell.value) if isinstance(cell.value, float | int) else -math.inf


def gibibytes(value: float | None) -> Cell:
    """Bytes as GiB."""
    return number(None if value is None else value / 2**30, "{:.2f}".format)


def scientific(value: float | None) -> Cell:
    """A learning rate or weight decay: 6e-2."""
    return number(value, _scientific)


def _scientific(value: float) -> str:
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def si(value: float | None) -> Cell:
    """Three digits and a prefix: 1.21 G."""
    return number(value, _si)


def _si(value: float) -> str:
    for factor, sign in ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{sign}"
    return f"{value:.3g}"


def duration(seconds: float | None) -> Cell:
    """Seconds in words that one reads at a glance."""
    return number(seconds, duration_text)


def duration_text(seconds: float) -> str:
    """0.25 s, 12 s, 3.5 min, 2.0 h."""
    if seconds < 0.1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
