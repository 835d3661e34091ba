"""`onelip leaderboard`: certified accuracy against core time, from records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from onelip.atomic_files import write_atomically
from onelip.bench.report.leaderboard import entries_of_runs, leaderboard_page, shipped_entries
from onelip.bench.runs import load_records


@dataclass(frozen=True)
class LeaderboardOptions:
    """Certified accuracy on CIFAR-10 against the processor time of training: your runs, onelip's, the literature's.

    Example: onelip leaderboard runs --out leaderboard.md
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of runs; without any, the networks that come with onelip."""
    out: Path | None = None
    """Where to write the page, in Markdown; by default it is printed."""

    def run(self) -> int:
        """Print or write the page."""
        records = [run.record for folder in self.runs for run in load_records(folder).runs]
        page = leaderboard_page([*shipped_entries(), *entries_of_runs(records)])
        if self.out is None:
            print(page)
        else:
            write_atomically(self.out, page.encode())
            print(self.out)
        return 0


COMMAND = LeaderboardOptions
