"""One writer per run: an advisory lock (`flock`) on a file in the run's folder.

The kernel drops the lock when its process ends, `kill -9` included, so a lock never has to be broken by hand.
The file itself stays: deleting it would let two processes hold "the" lock on two different files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from pathlib import Path

from onelip.atomic_files import WriteError
from onelip.errors import InvalidInputError

LOCK_FILE = ".lock"
_PATIENCE_SECONDS = 1.0  # long enough for somebody who only looks (is_locked) to let go again


class RunLock:
    """The right to write in a folder, from construction to `release()`; the folder is made if missing."""

    def __init__(self, folder: Path) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (descriptor := _try_lock(folder)) is None:
            if time.monotonic() > deadline:
                raise InvalidInputError(
                    f"{folder}: another process writes this run ({_holder(folder)}); wait for it or stop it"
                )
            time.sleep(0.02)
        self._descriptor: int | None = descriptor
        # Only for the message above, so a full disk is no reason to fail here.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def release(self) -> None:
        """Let others write; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(folder: Path) -> bool:
    """Whether some process writes in this folder now."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:  # no lock file, or a folder of somebody else: not a writer that we could know of
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _try_lock(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:  # removed between the two lines by `onelip runs rm`
        return None
    except OSError as error:
        raise WriteError(f"cannot write in {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The folder may have been removed and made again meanwhile: then this locks a file nobody else sees.
        if os.fstat(descriptor).st_ino == os.stat(folder / LOCK_FILE).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        os.close(descriptor)
        raise WriteError(f"cannot lock {folder / LOCK_FILE}: {error.strerror}") from error
    os.close(descriptor)
    return None


def _holder(folder: Path) -> str:
    try:
        return (folder / LOCK_FILE).read_text() or "unknown process"
    except OSError:
        return "unknown process"
