"""Print the costs of every method, in symbols and in numbers.

```
onelip theory --c 128 --counted
```

Operations are multiply-accumulates of the forward pass; memory is the count of numbers (4 bytes each) kept for the
backward pass. A method has a second row where onelip computes it in another way than its authors.

Circular layers with one kernel act on frequencies for shapes where that is much cheaper than a convolution, which the
formulas describe; counts are those of the form in use.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from onelip.bench.cli.options import Json
from onelip.bench.cli.outcome_tables import short_number
from onelip.bench.measurement.layer_costs import CountedRow, counted_rows
from onelip.bench.paper.complexity import CountedCosts, LayerShape, TheoryRow, pretty
from onelip.bench.records import dump_json
from onelip.bench.terminal import Terminal, plain_table
from onelip.layers.frequency_choice import FREQUENCY_SHARE, WHOLE_SHARE
from onelip.linalg.fourier import LARGEST_WHOLE
from onelip.protocol import NOT_GIVEN


@dataclass(frozen=True, kw_only=True)
class Command(Json):
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

    def run(self) -> int:
        """Print the table."""
        shape = LayerShape(self.b, self.s, self.c, self.k, self.t)
        rows = counted_rows(shape, self.counted)
        if not self.json:
            _print_tables(shape, rows, self.counted)
            return 0
        entries = [
            {"method": row.method, "source": row.source, "formulas": asdict(row.costs), "values": row.at(shape)}
            | ({"counted": asdict(count)} if count else {})
            for row, count in rows
        ]
        print(dump_json({"shape": asdict(shape), "rows": entries}))
        return 0


def _print_tables(shape: LayerShape, rows: list[CountedRow], counted: bool) -> None:
    console = Terminal()
    costs = [(row.method, row.source, row.costs) for row, _ in rows]
    what = [(method, by, cost.input_operations, cost.parameter_operations) for method, by, cost in costs]
    parts = ("of the input", "of the parameters")
    console.print(plain_table(("method", "by", *parts), (), what, title="What is computed", wrapped=parts))
    console.print(
        f"By frequency: where that takes less than {WHOLE_SHARE} of the products on images up to "
        f"{LARGEST_WHOLE} x {LARGEST_WHOLE}, {FREQUENCY_SHARE} on larger ones. Costs are of CONV.\n"
    )
    for part in ("input", "parameter"):
        names = (f"{part}_macs", f"{part}_memory")
        symbols = [(method, by, *(pretty(getattr(cost, name)) for name in names)) for method, by, cost in costs]
        title = f"{part.capitalize()} transformation"
        formulas = ("MACs", "memory")
        console.print(plain_table(("method", "by", *formulas), (), symbols, title=title, wrapped=formulas))
    console.print("C = b s² c² k², M = b s² c, P = c² k²: products, input and kernel of a plain convolution.\n")
    console.print(f"For b={shape.b} s={shape.s} c={shape.c} k={shape.k} t={shape.t}:\n")
    for part in ("input", "parameter"):
        numbers = ("MACs", "counted", "memory", "counted") if counted else ("MACs", "memory")
        values = [_values(row, count, part, shape, counted) for row, count in rows]
        console.print(plain_table(("method", "by"), numbers, values, title=f"{part.capitalize()} transformation"))
    if any(count and count.by_frequency for _, count in rows):
        console.print("* counted by frequency: for this shape cheaper than the convolution of the formula.")


def _values(row: TheoryRow, count: CountedCosts | None, part: str, shape: LayerShape, counted: bool) -> list[str]:
    cells, given = [row.method, row.source], row.at(shape)
    for name in (f"{part}_macs", f"{part}_memory"):
        cells.append(short_number(given[name]) if name in given else NOT_GIVEN)
        if counted:
            mark = " *" if count and count.by_frequency else ""
            cells.append(short_number(getattr(count, name)) + mark if count else "")
    return cells
