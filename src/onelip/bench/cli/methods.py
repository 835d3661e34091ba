"""`onelip methods`: what there is to choose from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.text import Text

from onelip.bench.terminal import plain_table
from onelip.layers import list_methods


@dataclass(frozen=True)
class MethodsOptions:
    """List all methods: what each one guarantees, and where it comes from."""

    json: bool = False
    """Print a JSON list with all details, links and costs included, instead of a table."""

    def run(self) -> int:
        """Print one row, or one JSON object, per method."""
        methods = list_methods()
        if self.json:
            print(json.dumps([asdict(method) for method in methods], indent=2, default=lambda layer: layer.__name__))
            return 0
        columns = ("key", "title and paper", "year", "guarantee", "conv\nlinear")
        table = plain_table(columns, wrapped=("title and paper",))
        for method in methods:
            paper = method.paper.removeprefix(f"{method.title}: ")  # some papers already begin with their method
            title = Text.assemble((method.title, "bold"), f": {paper}")
            classes = f"{method.conv.__name__}\n{method.linear_layer.__name__}"
            table.add_row(Text(method.key, "bold"), title, str(method.year), method.guarantee, classes)
        console = Console()
        console.print(table)
        console.print(
            "guarantee: an [bold]orthogonal[/] layer keeps all norms if it is square and circularly padded, "
            "a [bold]bounded[/] one cannot increase them. conv, linear: the classes in onelip.layers.",
            highlight=False,
        )
        return 0


COMMAND = MethodsOptions
