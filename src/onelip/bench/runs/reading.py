"""Reading `record.json`: every way in which it can be wrong gets one line that names the file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from onelip.bench.runs.canonical import parse_json
from onelip.bench.runs.record import RECORD_FILE, SCHEMA_VERSION, RunRecord, RunStatus
from onelip.errors import InvalidInputError


def read_record(folder: Path) -> RunRecord:
    """The record in a run's folder; an `InvalidInputError` names the file and what is wrong with it."""
    path = folder / RECORD_FILE
    try:
        return _record_from_tree(parse_json(path.read_bytes().decode("utf-8")))
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: damaged: not UTF-8 text") from error
    except _ContentError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path}: damaged: not valid JSON ({error})") from error


class _ContentError(Exception):
    """The JSON is valid, but not a record that this version understands."""


_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "kind": (str,),
    "config": (dict,),
    "seed": (int, type(None)),
    "command": (list,),
    "versions": (dict,),
    "commit": (dict, type(None)),
    "machine": (dict,),
    "status": (str,),
    "reason": (str, type(None)),
    "metrics": (dict,),
    "seconds": (int, float),
    "created_at": (str,),
    "updated_at": (str,),
}


def _record_from_tree(tree: Any) -> RunRecord:
    if not isinstance(tree, dict) or "schema_version" not in tree:
        raise _ContentError("not an onelip record: it has no schema_version")
    fields: dict[str, Any] = dict(tree)
    version = fields.pop("schema_version")
    if version != SCHEMA_VERSION:
        advice = "update onelip" if isinstance(version, int) and version > SCHEMA_VERSION else "run it again"
        raise _ContentError(f"has schema version {version!r}, this onelip reads {SCHEMA_VERSION}; {advice}")
    name = fields.pop("name", None)
    if missing := [field for field in _FIELD_TYPES if field not in fields]:
        raise _ContentError(f"damaged: without {', '.join(missing)}")
    if unknown := [field for field in fields if field not in _FIELD_TYPES]:
        raise _ContentError(f"damaged: unknown fields {', '.join(unknown)}")
    for field, types in _FIELD_TYPES.items():
        if not isinstance(fields[field], types) or isinstance(fields[field], bool):
            raise _ContentError(f"damaged: {field} is a {type(fields[field]).__name__}")
    if fields["status"] not in list(RunStatus):
        raise _ContentError(f"damaged: unknown status {fields['status']!r}; known: {', '.join(RunStatus)}")
    _check_times(fields)
    fields["status"] = RunStatus(fields["status"])
    try:
        record = RunRecord(**fields)
    except InvalidInputError as error:
        raise _ContentError(f"damaged: {error}") from error
    if record.name != name:
        raise _ContentError(f"the configuration does not belong to the name {name!r}; edited by hand?")
    return record


def _check_times(fields: dict[str, Any]) -> None:
    for field in ("created_at", "updated_at"):
        try:
            moment = datetime.fromisoformat(fields[field])
        except ValueError as error:
            raise _ContentError(f"damaged: {field} is not a time: {fields[field]!r}") from error
        if moment.tzinfo is None:
            raise _ContentError(f"damaged: {field} has no time zone: {fields[field]!r}")
