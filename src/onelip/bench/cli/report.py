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
        built = self.write()
        if self.json:
            print(dump_json(asdict(built)))
        else:
            _print(built)
        return 0

    def write(self) -> WrittenReport:
        """Write it, with progress on the error output."""
        with stages(self.quiet) as tell:
            return write_report(
                self.study,
                self.out,
                counts=counted_costs() if self.theory else None,
                progress=lambda what, done, total: tell(f"figure {done + 1} of {total}"),
            )


def write_study_report(study: Path, *, quiet: bool) -> None:
    """Write the report of a folder of runs and say where it is: the last step of `onelip compare`."""
    built = Command(study=study, quiet=quiet).write()
    if not quiet:
        _print(built)


def _print(built: WrittenReport) -> None:
    console = Terminal(soft_wrap=True)
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
