"""Optuna's journal: one line of JSON per operation, and its repair after a crash.

A power loss or a full disk may leave half a line or rubbish at the end, which Optuna refuses for ever. The good
beginning is kept and the rest is cut off. Nothing is lost by it: a trial's point is a function of its number, so a
trial that was cut off is asked for again, and its run, which is a record of its own, is found or continued.
"""

from __future__ import annotations

import json
from pathlib import Path

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock

from onelip.atomic_files import read_regular, write_atomically
from onelip.bench.file_lock import lock_file
from onelip.errors import InvalidInputError, one_line

JOURNAL_FILE = "journal.log"
_LOCK_FILE = ".journal-lock"


class JournalLock(BaseJournalFileLock):
    """One writer of a journal at a time, by a lock that the kernel drops when its process dies.

    Optuna's own lock is a link that a killed process leaves behind: others wait 30 seconds for it, and for ever if the
    path of the journal is relative.
    """

    def __init__(self, journal: Path) -> None:
        self._lock = lock_file(journal.with_name(_LOCK_FILE))

    def acquire(self) -> bool:
        """Wait for it."""
        self._lock.acquire()
        return True

    def release(self) -> None:
        """Let others write."""
        self._lock.release()


def open_journal(folder: Path) -> JournalStorage:
    """The storage of the study in this folder, made if missing; to be called under the lock of the folder."""
    path = folder / JOURNAL_FILE
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InvalidInputError(f"{path}: is not a regular file")
    if path.exists():
        _repair(path)
    try:
        return JournalStorage(JournalFileBackend(str(path), lock_obj=JournalLock(path)))
    except Exception as error:  # every line is JSON, but not what Optuna writes
        raise InvalidInputError(
            f"{path}: not a journal of a search ({one_line(error):.200}); delete it, the trials in {folder / 'runs'} "
            "are found again"
        ) from error


def _repair(path: Path) -> None:
    lock = JournalLock(path)  # no other worker is in the middle of a line
    lock.acquire()
    try:
        content = read_regular(path)
        good = 0
        for line in content.splitlines(keepends=True):
            if not _is_operation(line):
                break
            good += len(line)
        if good < len(content):
            write_atomically(path, content[:good])
    finally:
        lock.release()


def _is_operation(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and "op_code" in json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return False
