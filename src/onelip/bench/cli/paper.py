"""`onelip paper`: every table and figure of the comparison paper, the published one beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from onelip.bench.cli.report import counted_theory
from onelip.bench.cli.stages import stages
from onelip.bench.measurement.complexity import published_training_memory
from onelip.bench.published import published_epochs
from onelip.bench.report.paper_items import ITEMS, PaperSources
from onelip.bench.report.paper_page import PAGE, write_paper
from onelip.bench.report.read_study import read_study
from onelip.bench.report.study_rows import StudyResults
from onelip.bench.runs import NetworkSpec, dump_json
from onelip.bench.terminal import Terminal, plain_table
from onelip.errors import InvalidInputError, did_you_mean
from onelip.protocol import DATA_SETS


@dataclass(frozen=True)
class PaperOptions:
    """Put the tables and figures of the paper beside ours, made from the records of a study.

    Example: onelip paper radar budgets --study runs

    Writes one page, and every table (CSV, Markdown, LaTeX) and figure (SVG, PDF, PNG) as files in the folders
    `published` and `ours`. What a study has no records for says which command makes them.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Which ones, see --list; by default all of them."""
    study: Path | None = None
    """Folder of runs; without one only what needs no records is ours."""
    out: Path = Path("paper")
    """Where to write."""
    list: bool = False
    """Print the names, what they are in the paper, and the commands that make our records."""

    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print a JSON object: where the page is, and which items have no records of ours."""

    def run(self) -> int:
        """Write them and say where they are."""
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
            entries = write_paper(chosen, _sources(self.study), self.out, tell)
        absent = {entry.item.name: entry.item.make for entry in entries if not entry.ours}
        if self.json:
            print(dump_json({"page": self.out / PAGE, "without_records": absent}))
            return 0
        for name, make in absent.items():
            console.print(f"{name}: no records of ours; {make}")
        console.print(f"page: {self.out / PAGE}")
        return 0


def _sources(folder: Path | None) -> PaperSources:
    study = StudyResults(Path("no study")) if folder is None else read_study(folder)
    memory = {}
    for row in published_epochs():
        network = NetworkSpec(
            method=row.key, size=row.size, dataset="cifar10" if row.dataset == "cifar" else row.dataset
        )
        memory[network] = published_training_memory(row.key, row.size, DATA_SETS[network.dataset].image_size)
    return PaperSources(study, counted_theory(), memory)


COMMAND = PaperOptions
