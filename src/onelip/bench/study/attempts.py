"""One attempt at one job: `onelip job STUDY NAME` in whatever process an engine has started it.

    <study>/jobs/<name>/.lock            held by the process that works on the job; it ends with its process
    <study>/jobs/<name>/attempts.jsonl   a line when an attempt begins, and one when it ends: where, by whom, how
    <study>/jobs/<name>/output.log       what its processes printed

The attempts tell people what happened. Whether the job is done is in its record alone.
"""

from __future__ import annotations

import contextlib
import enum
import io
import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onelip.atomic_files import WriteError, append_line, read_end
from onelip.bench.file_lock import RunLock, refuse_link
from onelip.bench.records import parse_json, read_dataclass
from onelip.bench.records.machine import ENGINE_VARIABLE
from onelip.bench.study.job_base import Job, JobOptions, JobStatus, job_folder
from onelip.bench.study.job_ranks import ProcessDied, run_in_processes
from onelip.bench.terminal import say
from onelip.bench.training import LeftEarly
from onelip.errors import InvalidInputError, OnelipError, one_line

OUTPUT_FILE = "output.log"
PARENT_VARIABLE = "ONELIP_PARENT"
"""Environment variable with the process of the engine that a job ends with."""

_ATTEMPTS_FILE = "attempts.jsonl"
_MOST_BYTES = 1_000_000
"""Read from the end of a file that is for people."""


class ExitCode(enum.IntEnum):
    """How `onelip job` ends; the high numbers are EX_SOFTWARE, EX_IOERR and EX_TEMPFAIL of sysexits.h."""

    DONE = 0
    """The job is done, by this process or by an earlier one."""
    FAILED = 1
    """It has no result; the last line of the output says why."""
    BUSY = 3
    """Another process works on it."""
    DIED = 70
    """One of several processes that train together was killed; to be continued."""
    UNWRITTEN = 74
    """A file could not be written, on a full disk for one; another machine may do better."""
    LEFT = 75
    """Asked to stop, it has saved what it had; to be continued."""


@dataclass(frozen=True)
class Attempt:
    """One process that worked on a job; `outcome` is None if it runs or was killed."""

    host: str
    process: int
    engine: str
    load: float
    started_at: str
    outcome: str | None = None


def attempt(job: Job, study: Path, options: JobOptions) -> ExitCode:
    """Do or continue a job, unless it is done or another process works on it."""
    folder = job_folder(job, study)
    refuse_link(folder)
    try:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(RunLock(folder))
            except InvalidInputError as error:  # another process was quicker
                say(error)
                return ExitCode.BUSY
            if job.recorded(study).status is JobStatus.DONE:
                return ExitCode.DONE
            here = {"host": socket.gethostname(), "process": os.getpid()}
            here |= {"engine": os.environ.get(ENGINE_VARIABLE, "none"), "load": round(os.getloadavg()[0], 2)}
            _note(folder, {**here, "started_at": _now()})
            code = _run(job, study, options)
            _note(folder, {"ended_at": _now(), "outcome": code.name.lower()})
            return code
    except WriteError as error:  # of the lock or of the notes
        say(error)
        return ExitCode.UNWRITTEN


def attempt_all(jobs: Sequence[Job], study: Path, options: JobOptions) -> ExitCode:
    """Do or continue jobs, one after the other; the code is that of the last one that is not done.

    An engine writes what the process prints to the output of the first job: what the others say is in theirs too.
    """
    code = attempt(jobs[0], study, options)
    for job in jobs[1:]:
        if options.stop_requested():
            return ExitCode.LEFT
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = attempt(job, study, options) or code
        if said.getvalue():
            sys.stderr.write(said.getvalue())
            append_line(job_folder(job, study) / OUTPUT_FILE, said.getvalue().encode())
    return code


def _run(job: Job, study: Path, options: JobOptions) -> ExitCode:
    try:
        if options.processes > 1 and job.trains:
            run_in_processes(job, study, options)
        else:
            job.run(study, options)
    except LeftEarly:
        return ExitCode.LEFT
    except (WriteError, ProcessDied) as error:
        say(error)
        return ExitCode.UNWRITTEN if isinstance(error, WriteError) else ExitCode.DIED
    except Exception as error:  # whatever it is, it ends this job only, and its reason is told
        reason = str(error) if isinstance(error, OnelipError) else one_line(error)
        say(reason)
        return ExitCode.FAILED
    state = job.recorded(study)
    if state.status is JobStatus.DONE:
        return ExitCode.DONE
    say(state.reason or "it ended without a result")
    return ExitCode.FAILED


def read_attempts(job: Job, study: Path) -> list[Attempt]:
    """All attempts at a job so far, the oldest first."""
    found: list[Attempt] = []
    for line in _end_of(job, study, _ATTEMPTS_FILE):
        try:
            values = parse_json(line)
            if "ended_at" not in values:
                found.append(read_dataclass(Attempt, {"outcome": None, **values}, _ATTEMPTS_FILE))
            elif found:
                known = asdict(found[-1]) | {"outcome": values.get("outcome")}
                found[-1] = read_dataclass(Attempt, known, _ATTEMPTS_FILE)
        except (ValueError, TypeError):  # cut short by a kill, or written by somebody else
            continue
    return found


def last_output(job: Job, study: Path) -> str | None:
    """The last line that the job printed, without the name of the program."""
    lines = [line.strip() for line in _end_of(job, study, OUTPUT_FILE) if line.strip()]
    return lines[-1].removeprefix("onelip: ") if lines else None


def _end_of(job: Job, study: Path, name: str) -> list[str]:
    """Lines of a file that is for people; none where it cannot be read."""
    try:
        return read_end(job_folder(job, study) / name, _MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _note(folder: Path, values: dict[str, Any]) -> None:
    append_line(folder / _ATTEMPTS_FILE, json.dumps(values).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
