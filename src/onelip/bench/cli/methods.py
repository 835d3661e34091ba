"""List all methods, what they guarantee and where they are from.

```
onelip methods
onelip methods --json
```

The keys in the first column are what --method takes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from onelip.bench.cli.options import Json
from onelip.bench.paper.complexity import theory_table
from onelip.bench.paper.settings import PUBLISHED_SETTINGS
from onelip.bench.terminal import Terminal, plain_table
from onelip.layers import list_methods


@dataclass(frozen=True, kw_only=True)
class Command(Json):
    def run(self) -> int:
        methods = list_methods()
        if self.json:
            known = [asdict(method) | costs_and_setting(method.key) for method in methods]
            print(json.dumps(known, indent=2, default=lambda layer: layer.__name__))
            return 0
        columns = ("key", "title and paper", "year", "guarantee", "conv\nlinear")
        table = plain_table(columns, wrapped=("title and paper",))
        for method in methods:
            paper = method.paper.removeprefix(f"{method.title}: ")  # some papers already begin with their method
            title = Text.assemble((method.title, "bold"), f": {paper}")
            classes = f"{method.conv.__name__}\n{method.linear_layer.__name__}"
            table.add_row(Text(method.key, "bold"), title, str(method.year), method.guarantee, classes)
        console = Terminal()
        console.print(table)
        console.print(
            "guarantee: an orthogonal layer keeps all norms if it is square and circularly padded, "
            "a bounded one cannot increase them. conv, linear: the classes in onelip.layers."
        )
        return 0


def costs_and_setting(key: str) -> dict[str, Any]:
    """Cost formulas, as published and as computed here where that differs, and the setting of the paper's code."""
    rows = {row.source: asdict(row.costs) for row in theory_table() if row.method == key}
    setting = PUBLISHED_SETTINGS.get(key)
    return {"published": rows["published"], "ours": rows.get("onelip"), "setting": setting and asdict(setting)}
