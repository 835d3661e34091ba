"""Records of a study, read once, and again when they change: a driver asks for the same ones over and over."""

from __future__ import annotations

import os
from pathlib import Path

from onelip.atomic_files import open_regular
from onelip.bench.runs import RECORD_FILE, RunRecord, read_record

_known: dict[Path, tuple[tuple[int, int], RunRecord]] = {}


def known_record(folder: Path) -> RunRecord | None:
    """The record in a folder, None if there is none; `InvalidInputError` if it is damaged.

    Records are replaced, never written over, so that a changed one is another file. It is opened to look at it: NFS
    asks the server then, while `stat` may answer with what was known a minute ago.
    """
    try:
        with open_regular(folder / RECORD_FILE, os.O_RDONLY) as file:
            status = os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return read_record(folder)  # which says what is in its place
    version = (status.st_ino, status.st_mtime_ns)
    if folder not in _known or _known[folder][0] != version:
        _known[folder] = (version, read_record(folder))
    return _known[folder][1]
