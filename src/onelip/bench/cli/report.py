"""Write the report of a study: one HTML page, tables and figures.

```
onelip report study
onelip report runs --out my_report
```

Tables are written as CSV, Markdown and LaTeX (booktabs), figures as SVG, PDF and PNG. A folder that holds only a part
of a study gives a report too, which says what is missing. Nothing is trained or measured.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from onelip.bench.cli.options import FOLDER, SWITCH, Output
from onelip.bench.paper.complexity import CountedCosts, LayerShape, known_counts, method_keys
from onelip.bench.records import dump_json
from onelip.bench.report.write_report import WrittenReport, write_report
from onelip.bench.terminal import Terminal, stages, visible


@dataclass(frozen=True, kw_only=True)
class Command(Output):
    study: Path = field(default=Path("runs"), kw_only=False)
    """Folder of runs; those in its sub-folders count too."""
    out: Annotated[Path | None, FOLDER] = None
    """Where to write; by default the folder `report` inside the study."""
    theory: Annotated[bool, SWITCH] = True
    """The table of complexities, or none."""

    def run(self) -> int:
        """Build it and say where it is."""
        built = build_report(self.study, self.out, theory=self.theory, quiet=self.quiet)
        if self.json:
            print(dump_json(asdict(built)))
        else:
            print_report(built)
        return 0


def write_study_report(study: Path, *, quiet: bool) -> None:
    """Write the report of a folder of runs and say where it is: the last step of `onelip compare`."""
    print_report(build_report(study, None, theory=True, quiet=quiet), quiet=quiet)


def build_report(study: Path, out: Path | None, *, theory: bool, quiet: bool) -> WrittenReport:
    """Write the report of a folder of runs, with progress on the error output."""
    with stages(quiet) as tell:
        return write_report(
            study,
            out,
            counts=counted_costs() if theory else None,
            progress=lambda what, done, total: tell(f"figure {done + 1} of {total}"),
        )


def print_report(built: WrittenReport, *, quiet: bool = False) -> None:
    """Say where the report is, and what it does not have."""
    console = Terminal(soft_wrap=True, quiet=quiet)
    for sentence in built.absent:
        console.print(f"missing: {sentence}")
    if built.unreadable:
        console.print(f"not readable: {built.unreadable} records; the report lists them under Runs without a result")
    folder = visible(built.page.parent)
    console.print(f"{len(built.tables)} table files, {len(built.figures)} figure files in {folder}")
    console.print(f"report: {visible(built.page)}")


def counted_costs() -> dict[str, CountedCosts]:
    """What was counted of one layer of each method, for the table of theory."""
    counts = dict(known_counts())
    if added := [key for key in method_keys() if key not in counts]:  # files of the user's own in layers/methods
        counter = importlib.import_module("onelip.bench.measurement.layer_costs")  # and with it torch
        counts |= {key: counter.count_layer_costs(key, LayerShape()) for key in added}
    return counts
