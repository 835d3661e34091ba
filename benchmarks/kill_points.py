"""Ends a process at a file operation that is chosen beforehand, as SIGKILL or as a loss of power would."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from onelip import atomic_files
from onelip.bench.records import record as run_record
from onelip.bench.records.durations import TrainingClock
from onelip.bench.report import page as report_page
from onelip.bench.training import loop

Careless = Literal["", "in place", "unsynced"]
"""How files are written by a program that is less careful than onelip: the controls of the experiment."""
LOCKS = (".lock",)
_CREATING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Fate:
    """What happens to a process.

    Args:
        folder: file operations below it count.
        tally: gets a byte for each process that is ended; it is outside of the folder.
        operation: the number of the file operation at which the process ends; None to let it live.
        power: whether the power fails: what was written, but not yet forced to the disk, is lost.
        careless: how files are written.
    """

    folder: str
    tally: str
    operation: int | None = None
    power: bool = False
    careless: Careless = ""


class KillPoints:
    """Counts the file operations of this process, and ends it at the chosen one.

    A write has three points: before its first byte, in its middle, and after its last one.
    """

    def __init__(self, fate: Fate) -> None:
        self.fate, self.folder, self.count = fate, f"{fate.folder}/", 0
        self._write, self._fsync = os.write, os.fsync
        self._sizes: dict[str, int] = {}
        self._unsynced: dict[int, tuple[int, int]] = {}
        """By inode: a descriptor, which follows renames, and how many bytes of the file are on the disk."""

    def install(self) -> None:
        """For the rest of the life of this process."""
        sys.addaudithook(self._audited)
        os.write, os.fsync = self._torn_write, self._counted_fsync

    def _is_reached(self) -> bool:
        self.count += 1
        return self.count == self.fate.operation

    def _audited(self, event: str, arguments: Any) -> None:
        """Operations that Python announces; those that change nothing, such as making a folder again, do not count."""
        count = {"open": 1, "os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.symlink": 2}.get(event, 0)
        names = arguments[:count]
        paths = [os.path.abspath(os.fsdecode(name)) for name in names if isinstance(name, (str, bytes, os.PathLike))]
        if not any(path.startswith(self.folder) for path in paths) or (event == "os.mkdir" and os.path.isdir(paths[0])):
            return
        if event == "open":
            flags = arguments[2]
            if not (isinstance(flags, int) and flags & _CREATING):
                return
            is_there = os.path.exists(paths[0])
            self._sizes[paths[0]] = os.path.getsize(paths[0]) if is_there and not flags & os.O_TRUNC else 0
            if is_there and os.path.basename(paths[0]) in LOCKS:
                return
        if self._is_reached():
            self._die()

    def _torn_write(self, descriptor: int, data: Any) -> int:
        path = self._path(descriptor)
        if path is None:
            return self._write(descriptor, data)
        self._remember(descriptor, path)
        for part in (0, len(data) // 2, len(data)):
            if self._is_reached():
                self._write(descriptor, data[:part])
                self._die()
        return self._write(descriptor, data)

    def _counted_fsync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = self._path(number)
        if path is not None and os.path.isfile(path):
            self._remember(number, path)  # also what went past os.write, as a buffered file does
        if path is not None and self._is_reached():
            self._die()
        self._fsync(number)
        if path is not None:
            status = os.fstat(number)
            self._sizes[path] = status.st_size
            if status.st_ino in self._unsynced:
                os.close(self._unsynced.pop(status.st_ino)[0])

    def _remember(self, descriptor: int, path: str) -> None:
        inode = os.fstat(descriptor).st_ino
        if inode not in self._unsynced:
            self._unsynced[inode] = (os.dup(descriptor), self._sizes.get(path, 0))

    def _path(self, descriptor: int) -> str | None:
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            return path if path.startswith(self.folder) else None
        return None

    def _die(self) -> None:
        if self.fate.power:
            for descriptor, size in self._unsynced.values():
                os.ftruncate(descriptor, size)
        with Path(self.fate.tally).open("ab") as tally:
            tally.write(b"p" if self.fate.power else b"k")
        os.kill(os.getpid(), signal.SIGKILL)


def stop_clocks() -> None:
    """No time passes in this process, so that records of equal runs are equal, and every step is a checkpoint."""
    names = ("monotonic", "process_time", "thread_time", "perf_counter")
    loop.time = SimpleNamespace(**dict.fromkeys(names, lambda: 0.0))  # type: ignore[assignment]
    assert TrainingClock.__init__.__kwdefaults__ is not None
    TrainingClock.__init__.__kwdefaults__["now"] = lambda: 0.0
    run_record._now = lambda: "2026-01-01T00:00:00.000+00:00"
    os.getloadavg = lambda: (0.0, 0.0, 0.0)
    begin = loop._Training.__init__

    def begin_often(self: Any, config: Any, folder: Path, run: Any, ranks: Any, options: Any) -> None:
        begin(self, config, folder, run, ranks, replace(options, checkpoint_seconds=0.0))

    loop._Training.__init__ = begin_often


def be_careless(how: Careless) -> None:
    """Write files as many programs do: over the old ones, or to a new name that takes the old one too early."""
    if how:
        write = _write_in_place if how == "in place" else _write_unsynced
        atomic_files.replace_files = report_page.replace_files = write


def _write_in_place(files: Mapping[Path, bytes]) -> None:
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_new(path, content)


def _write_unsynced(files: Mapping[Path, bytes]) -> None:
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{atomic_files.TEMPORARY_SUFFIX}")
        _write_new(temporary, content)
        os.replace(temporary, path)


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        atomic_files._write_all(descriptor, content)
    finally:
        os.close(descriptor)
