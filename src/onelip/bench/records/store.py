"""Folders of runs: start or continue one, read them all, find one, remove one.

with start_run(Path("runs"), "train", config) as run:
    if run.record.status is not RunStatus.FINISHED:
        ...
        run.save_checkpoint({"model": model.state_dict()}, {"step": step})
        run.update(status=RunStatus.FINISHED, metrics={"test_accuracy": 0.71}, seconds=120.0)
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from onelip.atomic_files import WriteError, open_regular, remove_temporaries, write_atomically
from onelip.bench.file_lock import LOCK_FILE, RunLock, is_locked, refuse_link
from onelip.bench.records.canonical import canonical_json, looks_like_run_name
from onelip.bench.records.record import RECORD_FILE, RunRecord, RunStatus, new_record, read_record
from onelip.bench.records.resume_file import CHECKPOINT_FILE, Checkpoint, load_checkpoint, save_checkpoint
from onelip.errors import InvalidInputError, one_line


class Run:
    """A run that this process alone may write; made by `start_run`, ended by `close()` or its `with` block.

    An exception that leaves the block ends a running run as failed (interrupted for Ctrl-C) with the reason
    in its record, and goes on.
    """

    def __init__(self, folder: Path, record: RunRecord, lock: RunLock) -> None:
        self.folder = folder
        self.record = record
        self._lock = lock

    def update(self, **changes: Any) -> RunRecord:
        """Change fields of the record (`status`, `reason`, `metrics`, `seconds`, ...) and write it."""
        record = self.record.changed(**changes)
        write_atomically(self.folder / RECORD_FILE, record.to_json().encode())
        self.record = record
        return record

    def save_checkpoint(self, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        """See `onelip.bench.records.save_checkpoint`."""
        save_checkpoint(self.folder, tensors, meta)

    def load_checkpoint(self) -> Checkpoint | None:
        """See `onelip.bench.records.load_checkpoint`."""
        return load_checkpoint(self.folder)

    def close(self) -> None:
        """Let other processes write this run."""
        self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.record.status is RunStatus.RUNNING:
                # On a full disk the record stays "running" without a lock, which readers see as interrupted;
                # the error that led here must not be hidden by a second one.
                with contextlib.suppress(WriteError):
                    if isinstance(error, Exception):
                        self.update(status=RunStatus.FAILED, reason=one_line(error))
                    else:
                        left = "left before its end" if error is None else f"stopped by {type(error).__name__}"
                        self.update(status=RunStatus.INTERRUPTED, reason=left)
        finally:
            self.close()


def start_run(runs_dir: Path, kind: str, config: Any, *, job: str | None = None, device: str | None = None) -> Run:
    """Start the run of this configuration, or take up the one that is there, and lock it.

    A finished, diverged or pruned run is returned as it is: look at `run.record.status`. An interrupted or
    failed one (or one whose process was killed) is set to running again: it keeps its metrics and seconds,
    while command, versions, commit and machine become those of the new session. With `job`, the record gets that name:
    a trial of a search that turns out to be a study's training belongs to the training from then on. `device` is the
    kind of device that computes (`machine.device_name`); a run that continues on another kind names both.
    Raises `InvalidInputError` if another process writes it or if its record is damaged.
    """
    fresh = new_record(kind, config, job, device)
    folder = runs_dir / fresh.name
    refuse_link(folder)
    lock = RunLock(folder)
    try:
        remove_temporaries(folder)
        if not (folder / RECORD_FILE).exists():
            run = Run(folder, fresh, lock)
            run.update()
            return run
        run = Run(folder, read_record(folder), lock)
        if canonical_json(run.record.config) != canonical_json(fresh.config):
            raise InvalidInputError(f"{folder}: holds another configuration with the same hash; rename it")
        if run.record.status in (RunStatus.RUNNING, RunStatus.INTERRUPTED, RunStatus.FAILED):
            session = {name: getattr(fresh, name) for name in ("command", "versions", "commit", "machine")}
            if device is not None and (folder / CHECKPOINT_FILE).exists():
                machine = run.record.machine
                earlier = machine.get("devices") or [machine.get("device") or device]
                devices = list(dict.fromkeys([*map(str, earlier), device]))
                several = {"device": " and ".join(devices), "devices": devices}
                session["machine"] = fresh.machine | (several if len(devices) > 1 else {})
            run.update(status=RunStatus.RUNNING, reason=None, job=job or run.record.job, **session)
        elif job not in (None, run.record.job):
            run.update(job=job)
        return run
    except BaseException:
        lock.release()
        raise


@dataclass(frozen=True)
class StoredRun:
    """A record as found on the disk."""

    folder: Path
    record: RunRecord

    @property
    def status(self) -> RunStatus:
        """The recorded status, but interrupted where a "running" run has no process any more."""
        if self.record.status is RunStatus.RUNNING and not is_locked(self.folder):
            return RunStatus.INTERRUPTED
        return self.record.status


@dataclass(frozen=True)
class LoadedRecords:
    """The readable runs of a folder, by time of creation, and one line for each that is not."""

    runs: list[StoredRun]
    problems: list[str]


def load_records(runs_dir: Path) -> LoadedRecords:
    """Read all runs in a folder; a damaged one becomes a problem and does not keep the others from loading."""
    if not runs_dir.is_dir():
        raise InvalidInputError(f"{runs_dir}: no such folder of runs")
    runs, problems = [], []
    for folder in sorted(path for path in runs_dir.iterdir() if is_run(path)):
        try:
            runs.append(StoredRun(folder, read_record(folder)))
        except InvalidInputError as error:
            problems.append(str(error))
    return LoadedRecords(sorted(runs, key=lambda run: run.record.created_at), problems)


def is_run(folder: Path) -> bool:
    """Whether a folder was made by `start_run`; its record may be damaged or, after a kill, missing."""
    if folder.is_symlink() or not folder.is_dir() or folder.name.startswith("."):
        return False
    marks = [(folder / name).is_file() for name in (RECORD_FILE, LOCK_FILE)]
    return all(marks) or (any(marks) and looks_like_run_name(folder.name))


def find_run(runs_dir: Path, name: str) -> Path:
    """Folder of the run with this name, or with the only name that begins so; or the path of a run or of its model."""
    path = Path(name).parent if Path(name).is_file() else Path(name)
    if is_run(path):
        return path
    if not runs_dir.is_dir():
        raise InvalidInputError(f"{runs_dir}: no such folder of runs")
    if name and (runs_dir / name).is_dir() and not is_run(runs_dir / name):
        raise InvalidInputError(f"{runs_dir / name}: not a run of onelip")
    return runs_dir / find_name(sorted(path.name for path in runs_dir.iterdir() if is_run(path)), name, "run", runs_dir)


def find_name(known: Iterable[str], name: str, what: str, where: Path) -> str:
    """This name, or the only one that begins so."""
    known = list(known)
    found = [one for one in known if one == name] or [one for one in known if name and one.startswith(name)]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} {what}s begin with {name!r}" if found else f"no {what} begins with {name!r}"
    raise InvalidInputError(f"{where}: {problem}; there are: {', '.join((found or known)[:5]) or 'none'}")


def remove_run(folder: Path) -> None:
    """Delete a run's folder; refuses what is not a run and what is being written."""
    if not is_run(folder):
        raise InvalidInputError(f"{folder}: not a run of onelip; nothing was deleted")
    with RunLock(folder):
        try:
            # The rename makes the run vanish at once; a kill during the deletion leaves a hidden folder only.
            grave = folder.with_name(f".removed-{folder.name}-{secrets.token_hex(4)}")
            folder.rename(grave)
            shutil.rmtree(grave)
        except OSError as error:
            raise WriteError(f"cannot delete {folder}: {error.strerror}") from error


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
