"""Ray without a shared file system: the study stays with its driver, each attempt at a job gets what it needs.

An attempt works in a folder of its own, on whatever node: the plan, its run as far as it has come, and the records
that it needs. What changes there goes back through Ray's object store: every checkpoint while the job runs, and the
record at its end. One actor on the driver's node holds the locks of the jobs and alone writes the study, so that a job
that is lost with its node is continued on another one from its last checkpoint, and an attempt that was given up for
lost, but lives, cannot write over its successor.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.atomic_files import TEMPORARY_SUFFIX, replace_files, write_atomically
from onelip.bench.engines.engine_base import JobCommand
from onelip.bench.engines.process import ask_to_stop, hear_interrupts, start_process
from onelip.bench.file_lock import LOCK_FILE, RunLock, is_locked
from onelip.bench.runs import CHECKPOINT_FILE, RECORD_FILE, STUDY_FILE
from onelip.bench.study.attempts import OUTPUT_FILE, ExitCode
from onelip.bench.study.job_base import JOBS, Job
from onelip.errors import InvalidInputError

_PREFIX = "onelip-job-"
_TICKET_FILE = "ticket"
_SECONDS_PER_LOOK = 0.5

Files = dict[str, bytes | None]
"""Contents by path in the study; None is a file that is gone."""


@dataclass(frozen=True)
class Errand:
    """A job as seen by those who carry its files: its name, its run's folder, and the records that it needs.

    Paths are relative to the study. The folder is None where nobody knows it before the job is done.
    """

    name: str
    folder: str | None
    records: tuple[str, ...]

    @classmethod
    def of(cls, job: Job, study: Path) -> Errand:
        """That of a job whose needs are done."""
        own = job.folder(study)
        needed = [folder / RECORD_FILE for need in job.needs if (folder := need.folder(study)) is not None]
        records = tuple(str(path.relative_to(study)) for path in needed if path.exists())
        return cls(job.name, None if own is None else str(own.relative_to(study)), records)


class StudyKeeper:
    """Writes the study for attempts on other machines; a Ray actor on the driver's node.

    Each attempt has a ticket. The one that came last holds the job, which the study remembers; what others bring is
    refused.
    """

    def __init__(self, study: str) -> None:
        self._study = Path(study)
        self._locks: dict[str, RunLock] = {}

    def take(self, errand: Errand, ticket: str) -> Files | None:
        """Give a job to an attempt, with the files that it needs; None if another driver works on it."""
        if not self._lock(errand.name):
            return None
        write_atomically(self._ticket_file(errand.name), ticket.encode())
        folders = [self._study / JOBS / errand.name, *([] if errand.folder is None else [self._study / errand.folder])]
        found = [path for folder in folders for path in _files_in(folder)]
        found += [self._study / name for name in (STUDY_FILE, *errand.records)]
        return {str(path.relative_to(self._study)): path.read_bytes() for path in found}

    def keep(self, errand: Errand, ticket: str, files: Files) -> bool:
        """Write what an attempt brings, records last; false if the job is no longer its own."""
        if not (self._is_last(errand.name, ticket) and self._lock(errand.name)):
            return False
        write_files(self._study, files)
        return True

    def leave(self, errand: Errand, ticket: str) -> None:
        """The attempt has ended."""
        if self._is_last(errand.name, ticket) and errand.name in self._locks:
            self._locks.pop(errand.name).release()

    def _is_last(self, name: str, ticket: str) -> bool:
        return self._ticket_file(name).read_text() == ticket

    def _ticket_file(self, name: str) -> Path:
        return self._study / JOBS / name / _TICKET_FILE

    def _lock(self, name: str) -> bool:
        """Held from the first call for an attempt to its end, by this process: also if it was started again."""
        if name not in self._locks:
            try:
                self._locks[name] = RunLock(self._study / JOBS / name)
            except InvalidInputError:  # another driver's
                return False
        return True


def run_apart(keeper: Any, errand: Errand, command: JobCommand, study: str, worker_folder: str | None) -> int:
    """One attempt at a job in a folder of its own on this node; the exit code of its command."""
    import ray

    hear_interrupts()
    ticket = uuid.uuid4().hex
    files: Files | None = ray.get(keeper.take.remote(errand, ticket))
    if files is None:
        return ExitCode.BUSY
    try:
        root = _own_folder(worker_folder)
        lock = RunLock(root)
        write_files(root, files)
        arguments = tuple(str(root) if word == study else word for word in command.arguments)
        output = root / JOBS / errand.name / OUTPUT_FILE
        process = start_process(JobCommand(arguments, str(output), command.environment))
        try:
            return _bring_back(root, process, lambda new: ray.get(keeper.keep.remote(errand, ticket, new)))
        finally:
            ask_to_stop([process])
            shutil.rmtree(root, ignore_errors=True)
            lock.release()
    finally:
        ray.get(keeper.leave.remote(errand, ticket))


def _bring_back(root: Path, process: subprocess.Popen[bytes], keep: Any) -> int:
    """Send what changes until the process ends, and what it has left behind."""
    sent = _versions(root)
    saved: dict[Path, Any] = {}
    try:
        while True:
            try:
                code: int | None = process.wait(_SECONDS_PER_LOOK)
            except subprocess.TimeoutExpired:
                code = None
            versions = _versions(root)
            checkpoints = {path: version for path, version in versions.items() if path.name == CHECKPOINT_FILE}
            if code is not None or checkpoints != saved:
                if not keep(_changes(root, sent, versions)):
                    return ExitCode.BUSY
                sent, saved = versions, checkpoints
            if code is not None:
                return code
    except KeyboardInterrupt:  # cancelled: the training saves a checkpoint, which must not be lost
        ask_to_stop([process])
        keep(_changes(root, sent, _versions(root)))
        raise


def _changes(root: Path, before: Mapping[Path, Any], now: Mapping[Path, Any]) -> Files:
    """Records are read first: what they speak of is there already."""
    changed = sorted((path for path in now if now[path] != before.get(path)), key=lambda path: path.name != RECORD_FILE)
    found: Files = {str(path.relative_to(root)): path.read_bytes() for path in changed if path.exists()}
    return found | {str(path.relative_to(root)): None for path in before if path not in now}


def write_files(root: Path, files: Files) -> None:
    """Write them below a folder, records last, so that what they speak of is there."""
    named = sorted(files.items(), key=lambda item: Path(item[0]).name == RECORD_FILE)
    contents = {root / name: content for name, content in named if content is not None}
    for path in contents:
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_files(contents)
    for name, content in named:
        if content is None:
            (root / name).unlink(missing_ok=True)


def _versions(root: Path) -> dict[Path, tuple[int, int, int]]:
    found = {}
    for path in _files_in(root):
        try:
            status = path.stat()
        except FileNotFoundError:  # replaced or removed meanwhile: the next look sees it
            continue
        found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _files_in(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in (LOCK_FILE, _TICKET_FILE) and not path.name.endswith(TEMPORARY_SUFFIX):
            yield path


def _own_folder(worker_folder: str | None) -> Path:
    """A new folder; those that killed attempts have left behind go."""
    base = Path(worker_folder or tempfile.gettempdir())
    base.mkdir(parents=True, exist_ok=True)
    for old in base.glob(f"{_PREFIX}*"):
        parts = [old, *(old / JOBS).glob("*")]
        if (old / STUDY_FILE).exists() and not any(is_locked(part) for part in parts):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
