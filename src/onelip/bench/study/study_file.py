"""study.json: which jobs a study has, so that it can be continued without its options and reported while incomplete.

It holds no state of jobs, which is in their records alone. Every session adds its options and jobs; none are removed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onelip.atomic_files import read_regular, remove_temporaries, write_atomically
from onelip.bench.file_lock import RunLock
from onelip.bench.measurement import Measurement
from onelip.bench.measurement.measurements import fingerprint
from onelip.bench.measurement.sources import source_stamp
from onelip.bench.records import LARGEST_PLAN, STUDY_FILE, RunSpec, dump_json, parse_json, read_dataclass
from onelip.bench.records.store import find_name
from onelip.bench.study.job_base import Job
from onelip.bench.study.jobs import MeasureJob, TrainJob
from onelip.bench.study.options import StudyOptions
from onelip.bench.study.planner import plan
from onelip.bench.study.search import SearchConfig, SearchJob, TrialJob
from onelip.errors import InvalidInputError
from onelip.factories import is_factory_name
from onelip.version import __version__

FORMAT = "onelip.bench.study"
VERSION = 4
_WITHOUT_SPECS = 3
"""Plans of this version hold no specs of jobs: `onelip compare` plans them anew, from their options."""
_VERSIONS = (VERSION, _WITHOUT_SPECS)


def stored_options(study: Path) -> list[StudyOptions]:
    """The options of all sessions so far, each once; empty if the folder is not a study."""
    return _options(study, _read(study).get("options", []))


def stored_jobs(study: Path) -> dict[str, dict[str, Any]]:
    """What the plan holds of each job, by its name."""
    content = _read(study)
    if not content:
        raise InvalidInputError(f"{study}: is not the folder of a study; `onelip compare` makes one")
    if content["version"] == _WITHOUT_SPECS:
        raise InvalidInputError(f"{study}: planned by an older onelip; `onelip compare --out {study}` plans it anew")
    return {job["name"]: job for job in content["jobs"]}


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
    with RunLock(study):
        remove_temporaries(study)
        content = _read(study)
        known = content.get("options", [])
        planned = {job["name"]: job for job in content.get("jobs", [])}
        if content.get("version") == _WITHOUT_SPECS:
            planned = _entries(plan(*_options(study, known)))
        session = {"command": list(sys.argv), "started_at": datetime.now(UTC).isoformat(timespec="seconds")}
        plain = [parse_json(dump_json(one)) for one in options]
        merged = [*known, *(one for one in plain if one not in known)]
        new = {
            "format": FORMAT,
            "version": VERSION,
            "onelip": __version__,
            "notes": list(dict.fromkeys(note for one in _options(study, merged) for note in one.notes())),
            "options": merged,
            "sessions": [*content.get("sessions", []), session],
            "jobs": list((planned | _entries(jobs)).values()),
        }
        write_atomically(study / STUDY_FILE, (dump_json(new) + "\n").encode())


def _options(study: Path, stored: list[Any]) -> list[StudyOptions]:
    return [
        read_dataclass(StudyOptions, values, f"{study / STUDY_FILE}: options[{index}]")
        for index, values in enumerate(stored)
    ]


def _entries(jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
    return {job.name: {"name": job.name, "kind": job.kind, "device": job.device, **job.entry} for job in jobs}


def _read(study: Path) -> dict[str, Any]:
    path = study / STUDY_FILE
    try:
        content = parse_json(read_regular(path, LARGEST_PLAN).decode())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInputError(f"{path}: cannot be read ({reason}); move it away to plan the study anew") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("version") not in _VERSIONS:
        raise InvalidInputError(f"{path}: is not a plan of this version of onelip; use another folder")
    for name in ("options", "sessions", "jobs"):
        items = content.get(name)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise InvalidInputError(f"{path}: {name} is not a list of objects; move it away to plan the study anew")
    if not all(isinstance(job.get("name"), str) for job in content["jobs"]):
        raise InvalidInputError(f"{path}: a job has no name; move it away to plan the study anew")
    return content


def planned_jobs(study: Path, names: Sequence[str]) -> list[Job]:
    """The jobs of a study with these names, or with the only names that begin so."""
    plan = stored_jobs(study)
    return [_planned_job(study, plan, find_name(plan, name, "job", study)) for name in dict.fromkeys(names)]


def _planned_job(study: Path, plan: Mapping[str, Mapping[str, Any]], name: str) -> Job:
    """The job of an entry; what does not fit is named by file, job and field."""
    entry, where = plan[name], f"{study / STUDY_FILE}: {name}"
    kind, device, spec, searched = (entry.get(field) for field in ("kind", "device", "spec", "search"))
    if device not in ("cpu", "cuda"):
        raise InvalidInputError(f"{where}: has no device, cpu or cuda")
    search = None
    if searched is not None and kind not in ("measure", "search"):
        is_planned = isinstance(searched, str) and plan.get(searched, {}).get("kind") == "search"
        search = _planned_job(study, plan, searched) if is_planned else None
        if not isinstance(search, SearchJob):
            raise InvalidInputError(f"{where}: its search is not in the plan")
    if kind == "measure":
        job = MeasureJob(read_dataclass(Measurement, spec, f"{where}.spec"), device)
        if entry.get("stamp") != source_stamp() or job.network.is_factory:
            measured = job.measurement
            if measured.code != fingerprint(measured.quantity, measured.network.method, measured.network.model):
                raise InvalidInputError(f"planned for other code; `onelip compare --out {study}` plans the study anew")
    elif kind == "search":
        job = SearchJob(read_dataclass(SearchConfig, spec, f"{where}.spec"), device)
    elif kind == "train":
        job = TrainJob(read_dataclass(RunSpec, spec, f"{where}.spec"), search, device)
    elif kind == "trial" and search is not None and type(entry.get("number")) is int:
        job = TrialJob(search.config, entry["number"], device)
    else:
        raise InvalidInputError(f"{where}: is no measurement, search, trial or training")
    if job.name != name:
        raise InvalidInputError(f"{where}: its entry is that of {job.name}; edited by hand?")
    return job
