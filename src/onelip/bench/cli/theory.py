"""`onelip theory`: the complexity table of the comparison paper."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD

from onelip.bench.cli import CommandInfo

if TYPE_CHECKING:
    from onelip.bench.measurement import CountedCosts
    from onelip.bench.measurement.theory import LayerShape, TheoryRow

    Rows = list[tuple[TheoryRow, CountedCosts | None]]


@dataclass(frozen=True)
class Theory:
    """Print the costs of every method in symbols and for one layer.

    Operations are multiply-accumulates of the forward pass; memory is the count of numbers (4 bytes each) kept for
    the backward pass. A method has a second row where onelip computes it in another way than its authors.

    Circular layers with one kernel act on frequencies for shapes where that is much cheaper than a convolution, which
    the formulas describe; counts are those of the form in use.
    """

    b: int = 256
    """Batch size."""

    s: int = 32
    """Height and width of the images."""

    c: int = 64
    """Channels."""

    k: int = 3
    """Height and width of the kernel."""

    t: int = 10
    """Inner iterations of the published algorithms (Bjorck, Newton, terms of a series)."""

    counted: bool = False
    """Also run onelip's layers on tensors without memory and print what was counted."""

    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> int:
        """Print the table."""
        from onelip.bench.measurement.theory import LayerShape

        shape = LayerShape(self.b, self.s, self.c, self.k, self.t)
        rows = _rows(shape, self.counted)
        _print_json(shape, rows) if self.json else _print_tables(shape, rows, self.counted)
        return 0


def _rows(shape: LayerShape, counted: bool) -> Rows:
    """Rows of the table, with the counted figures on the row that describes what onelip runs."""
    from onelip.bench.measurement import count_layer_costs
    from onelip.bench.measurement.theory import costs_in_use, theory_table

    rows: Rows = []
    for row in theory_table():
        in_use = counted and row == costs_in_use(row.method)
        rows.append((row, count_layer_costs(row.method, shape) if in_use else None))
    return rows


def _print_json(shape: LayerShape, rows: Rows) -> None:
    import json

    entries: list[dict[str, Any]] = []
    for row, count in rows:
        entry: dict[str, Any] = {"method": row.method, "source": row.source}
        entry |= {"formulas": asdict(row.costs), "values": row.at(shape)}
        entries.append(entry | ({"counted": asdict(count)} if count else {}))
    print(json.dumps({"shape": asdict(shape), "rows": entries}, indent=2))


def _print_tables(shape: LayerShape, rows: Rows, counted: bool) -> None:
    from rich.console import Console

    from onelip.layers.spectral_conv import FREQUENCY_SHARE, WHOLE_SHARE
    from onelip.linalg.fourier import LARGEST_WHOLE

    console = Console()
    described = [row for row, _ in rows]
    console.print(_operations(described))
    console.print(
        f"By frequency: where that takes less than {WHOLE_SHARE} of the products on images up to "
        f"{LARGEST_WHOLE} x {LARGEST_WHOLE}, {FREQUENCY_SHARE} on larger ones. Costs are of CONV.\n"
    )
    for part in ("input", "parameter"):
        console.print(_symbols(part, described))
    console.print("C = b s² c² k², M = b s² c, P = c² k²: products, input and kernel of a plain convolution.\n")
    console.print(f"For b={shape.b} s={shape.s} c={shape.c} k={shape.k} t={shape.t}:\n")
    for part in ("input", "parameter"):
        console.print(_values(part, shape, rows, counted))
    if any(count and count.by_frequency for _, count in rows):
        console.print("* counted by frequency: for this shape cheaper than the convolution of the formula.")


def _operations(rows: list[TheoryRow]) -> Any:
    from rich.table import Table

    table = Table(title="What is computed", title_justify="left", box=SIMPLE_HEAD)
    for name in ("method", "by", "of the input", "of the parameters"):
        table.add_column(name, no_wrap=name in ("method", "by"))
    for row in rows:
        table.add_row(row.method, row.source, row.costs.input_operations, row.costs.parameter_operations)
    return table


def _symbols(part: str, rows: list[TheoryRow]) -> Any:
    from rich.table import Table

    from onelip.bench.measurement.theory import pretty

    table = Table(title=f"{part.capitalize()} transformation", title_justify="left", box=SIMPLE_HEAD)
    for name in ("method", "by", "MACs", "memory"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        macs, memory = (pretty(getattr(row.costs, f"{part}_{what}")) for what in ("macs", "memory"))
        table.add_row(row.method, row.source, macs, memory)
    return table


def _values(part: str, shape: LayerShape, rows: Rows, counted: bool) -> Any:
    from rich.table import Table

    from onelip.bench.measurement.tables import short_number

    table = Table(title=f"{part.capitalize()} transformation", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("method")
    table.add_column("by")
    for what in ("MACs", "memory"):
        table.add_column(what, justify="right")
        if counted:
            table.add_column("counted", justify="right")
    for row, count in rows:
        cells = [row.method, row.source]
        for what in (f"{part}_macs", f"{part}_memory"):
            cells.append(short_number(row.at(shape)[what]))
            if counted:
                cells.append(_counted_cell(count, what) if count else "")
        table.add_row(*cells)
    return table


def _counted_cell(count: CountedCosts, what: str) -> str:
    from onelip.bench.measurement.tables import short_number

    return short_number(getattr(count, what)) + (" *" if count.by_frequency else "")


COMMAND = CommandInfo("theory", Theory)
