"""List, show or delete runs.

```
onelip runs list --method soc
onelip runs show soc-XS
onelip runs rm soc-XS
```

A run is a folder with its record and its network, made by `onelip train`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from onelip.bench.cli.options import Json, RunsFolder, sub_commands
from onelip.bench.records import (
    SCHEMA_VERSION,
    RunStatus,
    StoredRun,
    dump_json,
    find_run,
    load_records,
    read_record,
    remove_run,
)
from onelip.bench.terminal import Terminal, plain_table, say, visible
from onelip.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class ListRuns(Json, RunsFolder):
    """List the runs, oldest first; records that cannot be read are named after the table."""

    method: tuple[str, ...] = ()
    """Only runs of these methods."""
    dataset: tuple[str, ...] = ()
    """Only runs on these data sets."""
    status: tuple[RunStatus, ...] = ()
    """Only runs with these statuses."""
    metrics: tuple[str, ...] = ("test_accuracy", "test_certified_accuracy_36")
    """Metrics to show as columns."""

    def run(self) -> int:
        loaded = load_records(self.runs_dir)
        runs = [run for run in loaded.runs if self._chosen(run)]
        if self.json:
            print(dump_json({"runs": [_as_tree(run) for run in runs], "problems": loaded.problems}))
        else:
            _print_list(runs, self.metrics, self.runs_dir)
        for problem in loaded.problems:
            say(problem)
        return 0

    def _chosen(self, run: StoredRun) -> bool:
        network = run.record.network
        return (
            (not self.method or network.method in self.method)
            and (not self.dataset or network.dataset in self.dataset)
            and (not self.status or run.status in self.status)
        )


@dataclass(frozen=True, kw_only=True)
class ShowRun(Json, RunsFolder):
    """Show everything that is recorded about one run."""

    name: str = field(kw_only=False)
    """Name of the run, or as much of its beginning as makes it unique."""

    def run(self) -> int:
        folder = find_run(self.runs_dir, self.name)
        run = StoredRun(folder, read_record(folder))
        if self.json:
            print(dump_json(_as_tree(run)))
        else:
            _print_record(run)
        return 0


@dataclass(frozen=True, kw_only=True)
class RemoveRuns(RunsFolder):
    """Delete runs with their records and checkpoints, after asking."""

    names: tuple[str, ...] = field(kw_only=False)
    """Names of runs, or as much of their beginnings as makes them unique."""
    yes: bool = False
    """Do not ask."""

    def run(self) -> int:
        """Delete the runs; 1 if the answer was no."""
        if not self.names:
            raise InvalidInputError("name at least one run; `onelip runs list` shows them")
        # All names are looked up before anything goes, so that a typing error deletes nothing.
        folders = list(dict.fromkeys(find_run(self.runs_dir, name) for name in self.names))
        for folder in folders:
            if not self.yes and not _confirmed(folder):
                print("kept", visible(folder))
                return 1
            remove_run(folder)
            print("deleted", visible(folder))
        return 0


def _confirmed(folder: Path) -> bool:
    try:
        return input(f"delete {folder}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        raise InvalidInputError("nobody is there to answer; use --yes to delete without asking") from None


def _as_tree(run: StoredRun) -> dict[str, Any]:
    tree = {"schema_version": SCHEMA_VERSION, "name": run.folder.name, "folder": run.folder}
    return tree | asdict(run.record) | {"status": run.status}


def _print_list(runs: list[StoredRun], metrics: tuple[str, ...], runs_dir: Path) -> None:
    names = [metric.removeprefix("test_").replace("_", " ") for metric in metrics]
    table = plain_table(("run", "status"), (*names, "time"), wrapped=("run", *names))
    for run in runs:
        values = [_number(run.record.metrics.get(metric)) for metric in metrics]
        table.add_row(run.folder.name, run.status.value, *values, _duration(run.record.seconds))
    console = Terminal()  # names and reasons may hold brackets
    console.print(f"{len(runs)} run{'' if len(runs) == 1 else 's'} in {runs_dir}", style="bold")
    console.print(table)


def _print_record(run: StoredRun) -> None:
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in _as_tree(run).items():
        if name == "seconds":
            grid.add_row("wall-clock", _duration(value))
        elif isinstance(value, dict) and value:
            for index, (key, item) in enumerate(value.items()):
                grid.add_row(name if index == 0 else "", f"{key}: {_number(item)}")
        elif isinstance(value, list):
            grid.add_row(name, " ".join(map(str, value)))
        else:
            grid.add_row(name, str(value) if value not in (None, {}) else "-")
    Terminal().print(grid)


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{seconds:.1f}s"


Command = sub_commands("runs", list=ListRuns, show=ShowRun, rm=RemoveRuns)
