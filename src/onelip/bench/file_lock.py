"""One writer per folder: an advisory lock (`flock`, by the library filelock) on a file in it.

The kernel drops the lock when its process ends, `kill -9` included, so a lock never has to be broken by hand.
The file itself stays: deleting it would let two processes hold "the" lock on two different files.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path

from filelock import FileLock, Timeout

from onelip.atomic_files import WriteError
from onelip.errors import InvalidInputError

LOCK_FILE = ".lock"
_PATIENCE_SECONDS = 1.0  # long enough for somebody who only looks (is_locked) to let go again


class RunLock:
    """The right to write in a folder, from construction to `release()`; the folder is made if missing."""

    def __init__(self, folder: Path, patience: float = _PATIENCE_SECONDS) -> None:
        deadline = time.monotonic() + patience
        while True:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._lock = lock_file(folder / LOCK_FILE)
                self._lock.acquire(timeout=max(0.0, deadline - time.monotonic()), poll_interval=0.02)
                return
            except Timeout as error:
                raise InvalidInputError(f"{folder}: another process writes here; wait for it or stop it") from error
            except FileNotFoundError as error:  # also if it was removed between the lines by `onelip runs rm`
                if time.monotonic() > deadline:
                    raise WriteError(f"cannot write in {folder}: it cannot be made, or is being removed") from error
            except OSError as error:
                raise WriteError(f"cannot write in {folder}: {error.strerror or error}") from error

    def release(self) -> None:
        """Let others write; a second call does nothing."""
        self._lock.release()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def refuse_link(folder: Path) -> None:
    """Refuse a link in place of a folder that only onelip makes: it leads to other files, which would be changed."""
    if folder.is_symlink():
        raise InvalidInputError(f"{folder}: is a link, and not the folder that onelip makes; remove it")


def lock_file(path: Path) -> FileLock:
    """The lock on this file, which is made if missing; refuses links, pipes and devices in its place.

    filelock follows no links (from 3.21 on), but takes a pipe or a device for a lock.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise WriteError(f"{path}: is not a regular file, so it is no lock; remove it")
    return FileLock(path, thread_local=False)


def is_locked(folder: Path) -> bool:
    """Whether some process writes in this folder now.

    By a shared lock, which filelock does not have: with an exclusive one, two that only look would see each other.
    """
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # no lock file, or a folder of somebody else: not a writer that we could know of
        return False
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
