"""Bring a data set into the cache: from its official address, or from files that the user has.

A download goes to `<name>.part`. A lost connection keeps it: the next attempt, in this process or a later one, asks
for the rest with a Range header. A wrong checksum, a file that is too long, or a full disk deletes it. The final
name appears only after the checksum agrees. (pooch would be shorter, but begins a lost download of 170 MB anew, and
has no limit of the size.)
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path

from onelip.atomic_files import WriteError, remove_temporaries
from onelip.bench.data.cache import save
from onelip.bench.data.catalogue import CatalogueEntry, RemoteFile
from onelip.bench.data.dataset import DataError, Dataset, Progress, silent
from onelip.bench.file_lock import RunLock
from onelip.local_machine import cache_folder

CHUNK = 1 << 18
ATTEMPTS = 4
TIMEOUT_SECONDS = 30.0
RETRY_PAUSE_SECONDS = 1.0
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES}


class SourceError(DataError):
    """The server did not deliver the data, for whatever reason on its side."""


def fetch(entry: CatalogueEntry, source: Path | None = None, progress: Progress = silent) -> Dataset:
    """Read, verify and store a data set; on any failure the cache is as it was before.

    Only the unfinished part of an interrupted download stays, in `downloads/`, for the next call to continue. One
    process fetches at a time: two would write to the same file.
    """
    try:
        lock = RunLock(cache_folder())
    except WriteError as error:
        raise DataError(f"{error}; choose another data folder with ONELIP_DATA") from error
    with lock:
        remove_temporaries(cache_folder())
        if source is not None:
            return _read_and_save(entry, source.expanduser(), progress)
        try:
            return _download_and_save(entry, progress)
        except SourceError as error:
            name = entry.info.name
            raise DataError(
                f"cannot fetch {name}: {error}; if you have the files: onelip data fetch {name} --from PATH"
            ) from error


def _download_and_save(entry: CatalogueEntry, progress: Progress) -> Dataset:
    downloads = cache_folder() / "downloads"
    downloads.mkdir(exist_ok=True)
    try:
        _check_space(entry, downloads)
        file = download(entry.source, downloads, progress)
        try:
            return _read_and_save(entry, file, progress)
        finally:
            file.unlink(missing_ok=True)
    finally:
        if not any(downloads.iterdir()):
            downloads.rmdir()


def _read_and_save(entry: CatalogueEntry, file: Path, progress: Progress) -> Dataset:
    dataset = entry.read(file, progress)
    save(dataset)
    return dataset


def _check_space(entry: CatalogueEntry, downloads: Path) -> None:
    """The archive and the decoded arrays lie side by side for a moment."""
    info, free = entry.info, shutil.disk_usage(downloads).free
    needed = entry.source.size + (info.train_size + info.test_size) * (info.channels * info.image_size**2 + 8)
    if free < needed:
        raise DataError(
            f"{info.name} needs {needed / 2**20:,.0f} MB in {downloads.parent}, {free / 2**20:,.0f} MB are free; "
            "free some, or set ONELIP_DATA to another folder"
        )


def download(
    remote: RemoteFile, folder: Path, progress: Progress = silent, *, timeout: float = TIMEOUT_SECONDS
) -> Path:
    """The verified file in `folder`; continues a `.part` that an earlier attempt has left there."""
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    if target.exists() and _is_right(target, remote):
        return target  # whoever downloaded it was killed before using it
    resumed = part.exists()
    _complete(remote, part, progress, timeout)
    if not _is_right(part, remote) and resumed:
        part.unlink()  # the old beginning may have been bad: once more, from the start
        _complete(remote, part, progress, timeout)
    if not _is_right(part, remote):
        size = part.stat().st_size
        part.unlink()
        raise SourceError(
            f"{remote.url}: not the expected file (checksum differs, {size:,} of {remote.size:,} bytes); deleted"
        )
    os.replace(part, target)
    return target


def _complete(remote: RemoteFile, part: Path, progress: Progress, timeout: float) -> None:
    """Append to `part` until the server has nothing more to give, over several connections if need be."""
    failure = ""
    for attempt in range(ATTEMPTS):
        time.sleep(attempt * RETRY_PAUSE_SECONDS)
        try:
            if _transfer(remote, part, progress, timeout):
                return
            failure = "the connection ended too early"
        except urllib.error.HTTPError as error:
            with error:
                failure = f"HTTP {error.code} {error.reason}"
            if error.code < 500:
                break  # asking again will not change the answer
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
                part.unlink(missing_ok=True)
                raise DataError(f"cannot write {part} ({remote.size:,} bytes needed): {error.strerror}") from error
            failure = str(getattr(error, "reason", error)) or type(error).__name__
    raise SourceError(f"{remote.url}: {failure}")


def _transfer(remote: RemoteFile, part: Path, progress: Progress, timeout: float) -> bool:
    """One connection; True if all that the server announced has arrived."""
    have = part.stat().st_size if part.exists() else 0
    if have >= remote.size:
        return True  # the checksum decides
    headers = {"User-Agent": "onelip", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with urllib.request.urlopen(urllib.request.Request(remote.url, headers=headers), timeout=timeout) as response:
        continues = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        done = have if continues else 0  # a server without ranges sends everything again
        end = remote.size if response.length is None else done + response.length
        with part.open("ab" if continues else "wb") as stream:
            while chunk := response.read(CHUNK):
                stream.write(chunk)
                done += len(chunk)
                progress(f"downloading {remote.name}", done, remote.size)
                if done > remote.size:  # a server that never stops must not fill the disk
                    break
            os.fsync(stream.fileno())
    return done >= end


def _is_right(file: Path, remote: RemoteFile) -> bool:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest() == remote.md5
