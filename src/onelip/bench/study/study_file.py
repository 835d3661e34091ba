"""study.json: which jobs a study has, so that it can be continued without its options and reported while incomplete.

It holds no state of jobs, which is in their records alone. Every session adds its options and jobs; none are removed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onelip.atomic_files import read_regular, remove_temporaries, write_atomically
from onelip.bench.file_lock import RunLock
from onelip.bench.runs import LARGEST_PLAN, STUDY_FILE, dump_json, parse_json, read_dataclass
from onelip.bench.study.job_base import Job
from onelip.bench.study.options import StudyOptions
from onelip.errors import InvalidInputError
from onelip.factories import is_factory_name
from onelip.version import __version__

FORMAT = "onelip.bench.study"
VERSION = 3


def stored_options(study: Path) -> list[StudyOptions]:
    """The options of all sessions so far, each once; empty if the folder is not a study."""
    return _options(study, _read(study).get("options", []))


def check_trusted(models: Iterable[str], trusted: Sequence[str]) -> None:
    """Refuse to run a user's own models unless the caller names them: a study may come from somebody else."""
    for name in models:
        if is_factory_name(name) and name not in trusted:
            raise InvalidInputError(
                f"the study has networks of {name}, and importing that runs code; "
                f"if you trust it, say so: --model {name}"
            )


def add_to_study(study: Path, options: Sequence[StudyOptions], jobs: Sequence[Job]) -> None:
    """Write the plan, or add to the one that is there; several processes may do so at once."""
    lock = RunLock(study)
    try:
        remove_temporaries(study)
        content = _read(study)
        known = content.get("options", [])
        plain = [parse_json(dump_json(asdict(one))) for one in options]
        planned = {job["name"]: job for job in content.get("jobs", [])}
        planned |= {job.name: _entry(job) for job in jobs}
        session = {"command": list(sys.argv), "started_at": datetime.now(UTC).isoformat(timespec="seconds")}
        merged = [*known, *(one for one in plain if one not in known)]
        notes = [note for one in _options(study, merged) for note in one.notes()]
        new = {
            "format": FORMAT,
            "version": VERSION,
            "onelip": __version__,
            "notes": list(dict.fromkeys(notes)),
            "options": merged,
            "sessions": [*content.get("sessions", []), session],
            "jobs": list(planned.values()),
        }
        write_atomically(study / STUDY_FILE, (dump_json(new) + "\n").encode())
    finally:
        lock.release()


def _options(study: Path, stored: list[Any]) -> list[StudyOptions]:
    return [
        read_dataclass(StudyOptions, values, f"{study / STUDY_FILE}: options[{index}]")
        for index, values in enumerate(stored)
    ]


def _entry(job: Job) -> dict[str, Any]:
    needs = [other.name for other in job.needs]
    return {"name": job.name, "kind": job.kind, "needs": needs, "network": job.network.as_dict(), **job.details}


def _read(study: Path) -> dict[str, Any]:
    path = study / STUDY_FILE
    try:
        content = parse_json(read_regular(path, LARGEST_PLAN).decode())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInputError(f"{path}: cannot be read ({reason}); move it away to plan the study anew") from error
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise InvalidInputError(f"{path}: is not a plan of this version of onelip; use another folder")
    for name in ("options", "sessions", "jobs"):
        items = content.get(name)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise InvalidInputError(f"{path}: {name} is not a list of objects; move it away to plan the study anew")
    if not all(isinstance(job.get("name"), str) for job in content["jobs"]):
        raise InvalidInputError(f"{path}: a job has no name; move it away to plan the study anew")
    return content
