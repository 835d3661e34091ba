"""One attempt at one job: `onelip job STUDY NAME` in whatever process an engine has started it.

    <study>/jobs/<name>/.lock            held by the process that works on the job; it ends with its process
    <study>/jobs/<name>/attempts.jsonl   a line when an attempt begins, and one when it ends: where, by whom, how
    <study>/jobs/<name>/output.log       what its processes printed

The attempts tell people what happened. Whether the job is done is in its record alone.
"""

from __future__ import annotations

import enum
import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onelip.atomic_files import WriteError, append_line, read_end
from onelip.bench.file_lock import RunLock, refuse_link
from onelip.bench.runs import parse_json, read_dataclass
from onelip.bench.runs.machine import ENGINE_VARIABLE
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
    """How `onelip job` ends."""

    DONE = 0
    """The job is done, by this process or by an earlier one."""
    FAILED = 1
    """It has no result; the last line of the output says why."""
    BUSY = 3
    """Another process works on it."""
    DIED = 70
    """One of several processes that train together was killed; to be continued. EX_SOFTWARE of sysexits.h."""
    UNWRITTEN = 74
    """A file could not be written, on a full disk for one; another machine may do better. EX_IOERR of sysexits.h."""
    LEFT = 75
    """Asked to stop, it has saved what it had; to be continued. The number is EX_TEMPFAIL of sysexits.h."""


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
        lock = RunLock(folder)
    except InvalidInputError as error:  # another process was quicker
        say(error)
        return ExitCode.BUSY
    except WriteError as error:
        say(error)
        return ExitCode.UNWRITTEN
    try:
        if job.recorded(study).status is JobStatus.DONE:
            return ExitCode.DONE
        _note(folder, _beginning())
        code = _run(job, study, options)
        _note(folder, {"ended_at": _now(), "outcome": code.name.lower()})
        return code
    except WriteError as error:  # of the notes
        say(error)
        return ExitCode.UNWRITTEN
    finally:
        lock.release()


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
    try:
        lines = read_end(job_folder(job, study) / _ATTEMPTS_FILE, _MOST_BYTES).splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            values = parse_json(line.decode())
            if "ended_at" not in values:
                found.append(read_dataclass(Attempt, {"outcome": None, **values}, _ATTEMPTS_FILE))
            elif found:
                known = found[-1].__dict__ | {"outcome": values.get("outcome")}
                found[-1] = read_dataclass(Attempt, known, _ATTEMPTS_FILE)
        except (ValueError, TypeError):  # cut short by a kill, or written by somebody else
            continue
    return found


def last_output(job: Job, study: Path) -> str | None:
    """The last line that the job printed, without the name of the program."""
    try:
        text = read_end(job_folder(job, study) / OUTPUT_FILE, _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("onelip: ") if lines else None


def _beginning() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "engine": os.environ.get(ENGINE_VARIABLE, "none"),
        "load": round(os.getloadavg()[0], 2),
        "started_at": _now(),
    }


def _note(folder: Path, values: dict[str, Any]) -> None:
    append_line(folder / _ATTEMPTS_FILE, json.dumps(values).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
