"""`onelip report`: a folder of run records becomes one HTML page, tables and figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from onelip.bench.cli.stages import stages
from onelip.bench.measurement.complexity import COSTS, LayerShape, pretty
from onelip.bench.measurement.layer_costs import counted_rows
from onelip.bench.report.cost_tables import LayerTheory, TheoryLine
from onelip.bench.report.write_report import WrittenReport, write_report
from onelip.bench.runs import dump_json
from onelip.bench.terminal import Terminal, visible


@dataclass(frozen=True)
class ReportOptions:
    """Make the report of a study: one HTML page that needs no network, and every table and figure as files.

    Tables are written as CSV, Markdown and LaTeX (booktabs), figures as SVG, PDF and PNG. A folder that holds only
    a part of a study gives a report too, which says what is missing. Nothing is trained or measured.
    """

    study: Annotated[Path, tyro.conf.Positional] = Path("runs")
    """Folder of runs; those in its sub-folders count too."""
    out: Path | None = None
    """Where to write; by default the folder `report` inside the study."""
    theory: bool = True
    """Leave out the table of complexities, whose counts take a few seconds."""

    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print a JSON object with the paths that were written and what the study does not have."""

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
            theory=counted_theory() if theory else None,  # needs the layers, which the report itself must not touch
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


def counted_theory() -> LayerTheory:
    """The complexity table for one layer, with what was counted beside the formulas."""
    shape = LayerShape()
    lines = []
    for row, counted in counted_rows(shape):
        formulas = {name: pretty(getattr(row.costs, name)) for name in COSTS}
        figures = None if counted is None else asdict(counted)
        lines.append(TheoryLine(row.method, row.source, formulas, row.at(shape), figures))
    described = ", ".join(f"{name} = {value}" for name, value in asdict(shape).items())
    return LayerTheory(described, tuple(lines))


COMMAND = ReportOptions
