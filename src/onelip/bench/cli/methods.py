"""`onelip methods`: what there is to choose from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onelip.bench.cli import CommandInfo

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from onelip.layers import MethodInfo


@dataclass(frozen=True)
class MethodsOptions:
    """List all methods: what each one guarantees, and where it comes from."""

    json: bool = False
    """Print a JSON list with all details, links and costs included, instead of a table."""

    def run(self) -> int:
        """Print one row, or one JSON object, per method."""
        from onelip.layers import list_methods  # torch takes a second to import, --help does not need it

        methods = list_methods()
        if self.json:
            print(json.dumps([_as_json(method) for method in methods], indent=2))
            return 0
        from rich.console import Console

        console = Console()
        console.print(_table(methods))
        console.print(
            "guarantee: an [bold]orthogonal[/] layer keeps all norms if it is square and circularly padded, "
            "a [bold]bounded[/] one cannot increase them. conv, linear: the classes in onelip.layers.",
            highlight=False,
        )
        return 0


def _table(methods: list[MethodInfo]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("key", style="bold", no_wrap=True)
    table.add_column("title and paper", ratio=1)
    table.add_column("year", no_wrap=True)
    table.add_column("guarantee", no_wrap=True)
    table.add_column("conv\nlinear", no_wrap=True)
    for method in methods:
        classes = f"{method.conv.__name__}\n{method.linear_layer.__name__}"
        table.add_row(method.key, _title(method), str(method.year), method.guarantee, classes)
    return table


def _title(method: MethodInfo) -> Text:
    from rich.text import Text

    paper = method.paper.removeprefix(f"{method.title}: ")  # some papers already begin with their method
    return Text.assemble((method.title, "bold"), f": {paper}")


def _as_json(method: MethodInfo) -> dict[str, Any]:
    """Everything in the record, with classes by name."""
    return {
        **asdict(method),
        "conv": method.conv.__name__,
        "linear_layer": method.linear_layer.__name__,
    }


COMMAND = CommandInfo("methods", MethodsOptions)
