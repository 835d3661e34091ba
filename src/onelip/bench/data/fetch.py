"""Bring a data set into the cache: official address first, then mirrors, or files that the user has."""

from __future__ import annotations

import shutil
from pathlib import Path

from onelip.atomic_files import WriteError, remove_temporaries
from onelip.bench.data.cache import save
from onelip.bench.data.catalogue import CatalogueEntry
from onelip.bench.data.dataset import DataError, Dataset, Progress, silent
from onelip.bench.data.download import RemoteFile, SourceError, download
from onelip.bench.file_lock import RunLock
from onelip.errors import InvalidInputError
from onelip.local_machine import cache_folder

SOURCE_FAILED = "source failed: "
"""How a progress message begins that must stay on the screen."""


def fetch(entry: CatalogueEntry, source: Path | None = None, progress: Progress = silent) -> Dataset:
    """Read, verify and store a data set; on any failure the cache is as it was before.

    Only the unfinished part of an interrupted download stays, in `downloads/`, for the next call to continue. One
    process fetches at a time: two would write to the same file.
    """
    if entry.read is None:
        raise InvalidInputError(f"{entry.info.name} comes with the package; there is nothing to fetch")
    try:
        lock = RunLock(cache_folder())
    except WriteError as error:
        raise DataError(f"{error}; choose another data folder with ONELIP_DATA") from error
    with lock:
        remove_temporaries(cache_folder())
        if source is not None:
            return _read_and_save(entry, source.expanduser(), progress)
        return _first_that_delivers(entry, progress)


def _first_that_delivers(entry: CatalogueEntry, progress: Progress) -> Dataset:
    failures: list[str] = []
    for remote in entry.sources:
        try:
            return _fetch_from(entry, remote, progress)
        except SourceError as error:
            failures.append(str(error))
            progress(f"{SOURCE_FAILED}{error}", 0, None)
    raise DataError(
        f"cannot fetch {entry.info.name}: {'; '.join(failures)}; "
        f"if you have the files: onelip data fetch {entry.info.name} --from PATH"
    )


def _fetch_from(entry: CatalogueEntry, source: RemoteFile, progress: Progress) -> Dataset:
    downloads = cache_folder() / "downloads"
    downloads.mkdir(exist_ok=True)
    try:
        _check_space(entry, source, downloads)
        file = download(source, downloads, progress)
        try:
            return _read_and_save(entry, file, progress)
        finally:
            file.unlink(missing_ok=True)
    finally:
        if not any(downloads.iterdir()):
            downloads.rmdir()


def _read_and_save(entry: CatalogueEntry, file: Path, progress: Progress) -> Dataset:
    assert entry.read is not None
    dataset = entry.read(file, progress)
    save(dataset)
    return dataset


def _check_space(entry: CatalogueEntry, source: RemoteFile, downloads: Path) -> None:
    """The archive and the decoded arrays lie side by side for a moment."""
    info, free = entry.info, shutil.disk_usage(downloads).free
    needed = source.size + (info.train_size + info.test_size) * (info.channels * info.image_size**2 + 8)
    if free < needed:
        raise DataError(
            f"{info.name} needs {needed / 2**20:,.0f} MB in {downloads.parent}, {free / 2**20:,.0f} MB are free; "
            "free some, or set ONELIP_DATA to another folder"
        )
