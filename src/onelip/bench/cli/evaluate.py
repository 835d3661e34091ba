"""`onelip evaluate`: accuracy and certified accuracy of a trained run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from onelip.bench.cli.train import print_result
from onelip.bench.runs import dump_json, find_run
from onelip.bench.training.evaluation import evaluate_run
from onelip.factories import search_working_folder


@dataclass(frozen=True)
class EvaluateCommand:
    """Certify the network of a finished run and put the results into its record."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Name of the run, or as much of its beginning as makes it unique."""
    runs_dir: Path = Path("runs")
    """Folder with one sub-folder per run."""
    split: Literal["test", "validation"] = "test"
    """Images to evaluate on."""
    device: str | None = None
    """cpu, cuda, ...; by default a GPU where there is one."""
    model: str | None = None
    """module:function that built the network, if it is one of your own: evaluating imports it, which runs its code."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print the metrics as JSON."""

    def run(self) -> int:
        """Evaluate one run."""
        search_working_folder()
        folder = find_run(self.runs_dir, self.name)
        allow = () if self.model is None else (self.model,)
        shown = False if self.quiet else None
        record = evaluate_run(folder, self.split, device=self.device, progress=shown, allow=allow)
        if self.json:
            print(dump_json(record.metrics))
        else:
            print_result(record, folder)
        return 0


COMMAND = EvaluateCommand
