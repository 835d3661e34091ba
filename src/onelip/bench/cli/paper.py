"""Put the paper's tables and figures beside those of a study.

```
onelip paper --list
onelip paper radar budgets --study runs
```

It writes one page, and every table (CSV, Markdown, LaTeX) and figure (SVG, PDF, PNG) as files in the folders
`published` and `ours`. Where a study has no records, the page says which command makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from onelip.bench.cli.options import FOLDER, Output
from onelip.bench.cli.report import counted_costs
from onelip.bench.records import dump_json
from onelip.bench.report.paper_items import ITEMS, PAGE, PaperSources, write_paper
from onelip.bench.report.read_study import read_study
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.terminal import Terminal, plain_table, stages
from onelip.errors import InvalidInputError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Command(Output):
    names: tuple[str, ...] = field(default=(), kw_only=False)
    """Which ones, see --list; by default all of them."""
    study: Path | None = None
    """Folder of runs; without one only what needs no records is ours."""
    out: Annotated[Path, FOLDER] = Path("paper")
    """Where to write."""
    list: bool = False
    """Print the names, what they are in the paper, and the commands that make our records."""

    def run(self) -> int:
        console = Terminal(soft_wrap=True)
        if self.list:
            rows = [(item.name, f"{item.place}: {item.title}", item.make) for item in ITEMS]
            columns = ("name", "in the paper", "what makes our records")
            Terminal().print(plain_table(columns, (), rows, wrapped=columns[1:]))
            return 0
        known = {item.name: item for item in ITEMS}
        if unknown := [name for name in self.names if name not in known]:
            names = f"{', '.join(unknown)}; use {', '.join(known)}{did_you_mean(unknown[0], known)}"
            raise InvalidInputError(f"the paper has no {names}")
        chosen = tuple(known[name] for name in self.names) or ITEMS
        with stages(self.quiet) as tell:
            study = StudyResults(Path("no study")) if self.study is None else read_study(self.study)
            without = write_paper(chosen, PaperSources(study, counted_costs()), self.out, tell)
        absent = {item.name: item.make for item in without}
        if self.json:
            print(dump_json({"page": self.out / PAGE, "without_records": absent}))
            return 0
        for name, make in absent.items():
            console.print(f"{name}: no records of ours; {make}")
        console.print(f"page: {self.out / PAGE}")
        return 0
