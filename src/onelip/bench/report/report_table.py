"""A table as data: columns that take their values from items and know how these are shown, and rows of plain values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from onelip.bench.report.method_style import method_style, slug
from onelip.bench.report.shares import centre, differ
from onelip.bench.report.study_rows import WITHOUT_GUARANTEE

NOTHING = "-"

Row = tuple[Any, ...]
Value = Callable[[Any], Any] | str
"""The value that a column takes from a row's item, or the path of its attribute: "network.method"."""


@dataclass(frozen=True)
class Column:
    """Heading, group heading above it, how a value is shown, which values are best, and where they come from."""

    title: str
    group: str = ""
    show: Callable[[Any], str] = str
    best: Literal["", "highest", "lowest"] = ""
    numeric: bool = True
    wraps: bool = False
    of: Value = field(default="", compare=False)

    @property
    def full_title(self) -> str:
        """Title with its group: "Accuracy XS"."""
        return f"{self.group} {self.title}".strip()

    def value(self, item: Any) -> Any:
        """What the column shows of an item; None where a part of the path is not known."""
        if not isinstance(self.of, str):
            return self.of(item)
        for name in self.of.split("."):
            item = None if item is None else getattr(item, name)
        return item


def words(title: str, of: Value = "", *, wraps: bool = False) -> Column:
    """A column of texts."""
    return Column(title, numeric=False, wraps=wraps, of=of)


METHOD = Column("Method", show=lambda key: method_style(key).label, numeric=False, of="network.method")
"""Keys of methods, shown by name and with their colour."""

SIZE, DATASET = words("Size", "network.size_name"), words("Data set", "network.dataset")


@dataclass(frozen=True)
class ReportTable:
    """One table; `name` is its file name, `section` where the page shows it.

    Best is marked among the rows that agree in the columns `best_within`, in every column that has a best.
    """

    name: str
    section: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    best_within: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", slug(self.name))

    @classmethod
    def of_items(
        cls,
        items: Iterable[Any],
        name: str,
        section: str,
        title: str,
        caption: str,
        columns: Sequence[Column],
        best_within: tuple[str, ...] = (),
    ) -> ReportTable:
        """One row for each item, with the value that each column takes from it."""
        rows = [tuple(column.value(item) for column in columns) for item in items]
        return cls(name, section, title, caption, columns, rows, best_within)

    @cached_property
    def texts(self) -> list[list[str]]:
        """What is shown, cell by cell."""
        return [
            [
                NOTHING if value in (None, "") else column.show(value)
                for column, value in zip(self.columns, row, strict=True)
            ]
            for row in self.rows
        ]

    @property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """Group headings and the columns below each; empty if the table has none."""
        found = [(group, list(members)) for group, members in groupby(self.columns, lambda column: column.group)]
        return found if any(group for group, _ in found) else []

    @property
    def methods(self) -> set[str]:
        """Keys of all methods that have a row."""
        return {row[self.columns.index(METHOD)] for row in self.rows} - {None} if METHOD in self.columns else set()

    @property
    def same_everywhere(self) -> list[Column]:
        """Columns of words that say the same in all rows, which a narrow screen leaves out."""
        return [
            column
            for column, values in zip(self.columns, zip(*self.rows, strict=True), strict=False)
            if not column.numeric and len(values) > 1 and len(set(values)) == 1
        ]

    @cached_property
    def best(self) -> set[tuple[int, int]]:
        """(row, column) of the best cells, and of all that the data do not tell from them.

        Where this is all cells, none is marked. Networks without a guarantee take no part: being cheaper or more
        accurate is then no merit.
        """
        titles = [column.full_title for column in self.columns]
        keys = [titles.index(title) for title in self.best_within]
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for index, row in enumerate(self.rows):
            if METHOD not in self.columns or row[self.columns.index(METHOD)] not in WITHOUT_GUARANTEE:
                groups[tuple(row[key] for key in keys)].append(index)
        marked: set[tuple[int, int]] = set()
        for place, column in enumerate(self.columns):
            for members in groups.values() if column.best else ():
                values = {i: value for i in members if (value := centre(self.rows[i][place])) is not None}
                if not values:
                    continue
                top = (max if column.best == "highest" else min)(values, key=values.__getitem__)
                best = self.rows[top][place]
                equal = [
                    i
                    for i in values
                    if not differ(self.rows[i][place], best) or self.texts[i][place] == self.texts[top][place]
                ]
                marked |= {(i, place) for i in equal if len(equal) < len(values)}
        return marked


def percent(value: float) -> str:
    """A fraction in per cent."""
    return f"{100 * value:.1f}"


def ratio(value: float) -> str:
    """Relative to the plain network."""
    return f"{value:.2f}"


def three_digits(value: float) -> str:
    """Three significant digits without an exponent, as far as that can be read."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):,.10g}"
    return scientific(value)


def three_places(value: float) -> str:
    """Three significant digits with their zeros, so that 15.0 stands below 14.7."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def scientific(value: float) -> str:
    """A learning rate or weight decay: 6e-2."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def memory_unit(values: Iterable[float]) -> tuple[int, str]:
    """The unit for all of these bytes, on one axis or in one cell."""
    most = max(values, default=0.0)
    return (2**30, "GiB") if most >= 2**30 else (2**20, "MiB") if most >= 2**20 else (2**10, "KiB")


def listed(names: Sequence[str], others: int = 0) -> str:
    """`a, b and c`, or `a, b and 3 more`."""
    shown = [*names, f"{others} more"] if others > 0 else names
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def memory(value: float) -> str:
    """Bytes in the unit that fits: 17.5 MiB, 2.31 GiB."""
    unit, name = memory_unit([value])
    return f"{three_places(value / unit)} {name}"


def with_prefix(value: float) -> str:
    """Three digits and a prefix: 1.21 G."""
    for factor, sign in ((1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{three_places(value / factor)}{sign}"
    return three_digits(value)


def seconds(value: float) -> str:
    """Three digits in the unit of the axis: 12.0 s, 457 s, 12,300 s."""
    return f"{three_digits(value)} s"


def duration(seconds: float) -> str:
    """0.250 s, 12.0 s, 3.50 min, 2.00 h."""
    if seconds < 0.1:
        return f"{three_places(1000 * seconds)} ms"
    if seconds < 120:
        return f"{three_places(seconds)} s"
    return f"{three_places(seconds / 60)} min" if seconds < 7200 else f"{three_places(seconds / 3600)} h"
