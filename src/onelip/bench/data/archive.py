"""Named files out of a folder or a tar archive, read into memory; nothing is ever unpacked to the disk.

An archive may come from anywhere. What it claims is compared with what a data set can be before memory is taken for it:
number of members, bytes of a header (a name of gigabytes compresses to nothing), of a member and of the whole.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from onelip.bench.data.dataset import Progress, silent
from onelip.errors import InvalidInputError

LARGEST_MEMBER = 400 * 2**20
"""No file of a supported data set is nearly this large; a larger one is not what it says it is."""
LARGEST_ARCHIVE = 2**30
MOST_MEMBERS = 1000
_LARGEST_HEADER = 2**16
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)
_DAMAGED += (OSError, KeyError, ValueError, OverflowError, RuntimeError)  # the last for what is encrypted
_COMPRESSIONS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever is wrong with the content of a file or folder is one line that names it, and what it should be."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    except _DAMAGED as error:
        # tarfile lists every format that it has tried, one per line
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
        raise InvalidInputError(f"{path}: damaged{kind} ({reason:.200})") from error


def check_regular(path: Path) -> None:
    """Refuse what is missing, and pipes and devices, which may never end; a link to a file or folder is one."""
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file or folder")
    if not path.is_file() and not path.is_dir():
        raise InvalidInputError(f"{path}: neither a regular file nor a folder")


def check_size(name: str, size: int, largest: int = LARGEST_MEMBER) -> None:
    """Refuse a file that is larger than any of its data set."""
    if size > largest:
        raise InvalidInputError(f"{name} has {size:,} bytes, far more than any file of this data set")


def read_members(path: Path, wanted: Collection[str], progress: Progress = silent) -> dict[str, bytes]:
    """The content of those files in `path` whose last name component is wanted, by that name."""
    check_regular(path)
    with reading(path, ", cut short or not a tar archive"):
        return _from_folder(path, wanted) if path.is_dir() else _from_tar(path, wanted, progress)


def _from_folder(folder: Path, wanted: Collection[str]) -> dict[str, bytes]:
    # The folder itself or one below it, as people name either; no deeper, for it may be a home folder.
    files = [file for pattern in ("*", "*/*") for file in sorted(folder.glob(pattern)) if file.is_file()]
    found: dict[str, bytes] = {}
    for file in files:
        if file.name in wanted and file.name not in found:
            check_size(file.name, file.stat().st_size)
            found[file.name] = file.read_bytes()
    return found


def _from_tar(path: Path, wanted: Collection[str], progress: Progress) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with path.open("rb") as raw:
        start = raw.read(6)
    decompress = next((opened for magic, opened in _COMPRESSIONS.items() if start.startswith(magic)), Path.open)
    with decompress(path, "rb") as stream:
        limited = _LimitedStream(stream)
        archive = tarfile.open(fileobj=limited, mode="r:")  # type: ignore[arg-type] # noqa: SIM115 - nothing to close
        for _ in range(MOST_MEMBERS):
            limited.largest = _LARGEST_HEADER
            if (member := archive.next()) is None:
                return found
            archive.members = []  # tarfile would keep them all
            name = PurePosixPath(member.name).name
            if member.isreg() and name in wanted:
                check_size(name, member.size)
                limited.largest = LARGEST_MEMBER
                extracted = archive.extractfile(member)
                assert extracted is not None  # regular files have one
                found[name] = extracted.read()
                progress("reading the archive", len(found), None)
    raise InvalidInputError(f"more than {MOST_MEMBERS} members, far more than any archive of this data set")


class _LimitedStream:
    """What tarfile needs of a stream, refusing reads that are larger than `largest` and positions beyond the limit."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.largest, self.tell = stream, _LARGEST_HEADER, stream.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.largest or self.tell() + size > LARGEST_ARCHIVE:
            raise InvalidInputError(f"a header or member of {size:,} bytes, far more than any of this data set")
        return self._stream.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        if position > LARGEST_ARCHIVE:
            raise InvalidInputError(f"a member ends after {position:,} bytes, far more than this data set has")
        return self._stream.seek(position, whence)
