"""Named files out of a folder or a tar archive, read into memory; nothing is ever unpacked to the disk."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from onelip.bench.data.base import Progress, silent
from onelip.errors import InvalidInputError

LARGEST_MEMBER = 400 * 2**20
"""No file of a supported data set is nearly this large; a larger one is not what it says it is."""


def read_members(path: Path, wanted: Collection[str], progress: Progress = silent) -> dict[str, bytes]:
    """The content of those files in `path` whose last name component is wanted, by that name."""
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file or folder")
    try:
        return _from_folder(path, wanted) if path.is_dir() else _from_tar(path, wanted, progress)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        # tarfile lists every format that it has tried, one per line
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
        raise InvalidInputError(f"{path}: damaged, cut short or not a tar archive ({reason})") from error


def _from_folder(folder: Path, wanted: Collection[str]) -> dict[str, bytes]:
    # The folder itself or one below it, as people name either; no deeper, for it may be a home folder.
    files = [file for pattern in ("*", "*/*") for file in sorted(folder.glob(pattern)) if file.is_file()]
    found: dict[str, bytes] = {}
    for file in files:
        if file.name in wanted and file.name not in found:
            _check_size(folder, file.name, file.stat().st_size)
            found[file.name] = file.read_bytes()
    return found


def _from_tar(path: Path, wanted: Collection[str], progress: Progress) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if not member.isfile() or name not in wanted:
                continue
            _check_size(path, name, member.size)
            stream = archive.extractfile(member)
            assert stream is not None  # regular files have one
            found[name] = stream.read()
            progress("reading the archive", len(found), None)
    return found


def _check_size(path: Path, name: str, size: int) -> None:
    if size > LARGEST_MEMBER:
        raise InvalidInputError(f"{path}: {name} has {size:,} bytes, far more than any file of this data set")
