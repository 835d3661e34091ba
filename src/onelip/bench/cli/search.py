"""Search the learning rate and weight decay of a training.

```
onelip search --method soc --size XS --dataset cifar10 --budget 5m
```

It does as the paper: 16 random points, log-uniform, learning rates in [1e-4, 1e-1], weight decays in
[10^-5.5, 10^-3.5], the best at radius 36/255. The same command continues a stopped study; started twice, it has two
workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from onelip.atomic_files import WriteError
from onelip.bench.cli.options import AT_LEAST_1, FOLDER, Checkpoints, Output
from onelip.bench.cli.train import TrainingOptions
from onelip.bench.data import load
from onelip.bench.file_lock import RunLock
from onelip.bench.records import dump_json
from onelip.bench.records.durations import parse_duration
from onelip.bench.records.machine import usable_device
from onelip.bench.study.attempts import ExitCode, attempt
from onelip.bench.study.job_base import JobOptions, JobStatus, state_of
from onelip.bench.study.search import SearchConfig, SearchJob, best_trial, trial_rows
from onelip.bench.terminal import Terminal, plain_table
from onelip.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class Command(Output, Checkpoints):
    options: TrainingOptions = field(default_factory=TrainingOptions)
    trials: Annotated[int, AT_LEAST_1] = 16
    """Number of points."""
    search_seed: int = 0
    """Chooses the points; --seed is that of the training runs."""
    studies_dir: Annotated[Path, FOLDER] = Path("studies")
    """Folder with one sub-folder per study."""

    def run(self) -> int:
        """Search; 1 if no trial was successful."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise InvalidInputError("search does not run under torchrun; start the same command once per GPU instead")
        spec = self.options.spec(self.device)
        config = SearchConfig(base=spec, trials=self.trials, search_seed=self.search_seed)
        folder = self.studies_dir / config.name
        if not folder.exists():
            load(spec.network.dataset)  # data that are not here are refused before there is a folder
        job = SearchJob(config, usable_device(self.device))
        work_on(job, folder, JobOptions(parse_duration(self.checkpoint_every), progress=not self.quiet))
        rows, best = trial_rows(job, folder), best_trial(job, folder)
        number = None if best is None else next(row["number"] for row in rows if row["run"] == best.name)
        if self.json:
            print(dump_json({"best": number, "trials": rows}))
        else:
            _print_table(rows, number, folder)
        return 0 if best is not None else 1


def work_on(job: SearchJob, folder: Path, options: JobOptions) -> None:
    """Do the trials that nobody else works on, and choose once all have ended."""
    RunLock(folder).release()  # a folder that cannot be written is refused in one line
    for one in (*job.needs, job):
        one.record(folder)  # a damaged one is refused before anything is done
    for one in (*job.needs, job):
        states = [state_of(trial, folder).status for trial in job.needs]
        if one is job and any(status in (JobStatus.PENDING, JobStatus.RUNNING) for status in states):
            return
        if attempt(one, folder, options) is ExitCode.UNWRITTEN:
            raise WriteError("the search could not be written; the same command continues")


def _print_table(rows: Sequence[dict[str, Any]], best: int | None, folder: Path) -> None:
    table = plain_table((), ("trial", "learning rate", "weight decay", "certified %"))
    table.add_column("state", overflow="fold")
    for row in rows:
        value = "-" if row["value"] is None else f"{100 * row['value']:.2f}"
        state = row["state"] + (f": {row['reason']}" if "reason" in row else "")
        numbers = [f"{row[name]:.2e}" for name in ("lr", "weight_decay")]
        table.add_row(str(row["number"]), *numbers, value, state, style="bold" if row["number"] == best else "")
    console = Terminal()
    console.print(table)
    console.print(f"study: {folder}", soft_wrap=True)
    if best is None:
        console.print("no trial was successful")
    else:
        chosen = f"--lr {rows[best]['lr']:.6g} --weight-decay {rows[best]['weight_decay']:.6g}"
        console.print(f"best: trial {best}, {chosen}", soft_wrap=True)
