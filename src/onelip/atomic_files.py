"""Files that are either the old version or the new one, never something in between.

The new content goes to a temporary file in the same folder (the same file system, so that the rename is
atomic), is forced to the disk, and only then takes the name: `write, fsync, rename, fsync of the folder`. A
full disk, a crash or `kill -9` at any of these steps leaves the previous version as it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Mapping
from io import FileIO
from pathlib import Path

from onelip.errors import OnelipError
from onelip.machine_memory import most_bytes

TEMPORARY_SUFFIX = ".onelip-tmp"


def check_place(folder: Path) -> None:
    """Refuse a folder that cannot be made because something above it is a file: before the work that is to go there."""
    nearest = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), folder)
    if not nearest.is_dir():
        raise WriteError(f"cannot write in {folder}: {os.strerror(errno.ENOTDIR)}")


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The content of a file; a pipe or a device, which may never end, raises `OSError` as a missing file does.

    So does a file of more than `most` bytes, by default half of the memory: a sparse one takes no room on a disk.
    """
    with open_regular(path, os.O_RDONLY) as file:
        size, largest = os.fstat(file.fileno()).st_size, most_bytes() if most is None else most
        if size > largest:
            raise OSError(errno.EFBIG, f"{size:,} bytes, more than the {largest:,} that are read", str(path))
        return file.read()


def read_end(path: Path, most: int) -> bytes:
    """The last bytes of a regular file, at most so many."""
    with open_regular(path, os.O_RDONLY) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, durably, also after one that a kill or a full disk cut short; the file is made if missing.

    Links are not followed: in a folder that somebody else made, one may point at any file of the reader.
    """
    try:
        with open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 1))
            separator = b"" if file.read(1) in (b"", b"\n") else b"\n"
            _write_all(file.fileno(), separator + line + b"\n")
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror}; free some space or check the folder") from error


def open_regular(path: Path, flags: int) -> FileIO:
    """Open a regular file; a pipe is opened without waiting for its other end, and closed again."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.ELOOP, "a link, which is not followed here", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return FileIO(descriptor, "rb" if flags == os.O_RDONLY else "r+b")


class WriteError(OnelipError):
    """A file could not be written; its name still stands for a whole file, old or (rarely) new."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by a file with this content, durably, or raise `WriteError` and leave no rest behind.

    After an error the old file is there as it was, but for one case: if only the last step fails (making the
    rename durable), the new file is in place and may be lost again with the power.
    """
    replace_files({path: content})


def replace_files(files: Mapping[Path, bytes]) -> None:
    """Replace many files, all or none: no name changes before every content is on the disk.

    Missing folders are made for more than one file. Each name stands for a whole file at every moment; a kill between
    two renames leaves some names with their old file, and the next call puts all of them right.
    """
    temporaries: dict[Path, Path] = {}
    path = next(iter(files), Path())
    try:
        for path, content in files.items():
            if len(files) > 1:
                path.parent.mkdir(parents=True, exist_ok=True)
            temporaries[path] = path.with_name(f".{path.name[-100:]}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
            _write_durably(temporaries[path], content)
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
        for folder in {path.parent for path in files}:
            _sync_folder(folder)
    except BaseException as error:
        for temporary in temporaries.values():
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise WriteError(f"cannot write {path}: {reason}; free some space or check the folder") from error
        raise


def remove_temporaries(folder: Path) -> None:
    """Delete what killed writers left in a folder; only for the one process that may write there."""
    for leftover in folder.glob(f".*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def _write_durably(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        _write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:  # write() may take only a part, on a nearly full disk for one
        remaining = remaining[os.write(descriptor, remaining) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)  # without it the rename itself may be lost when the power fails
    finally:
        os.close(descriptor)
