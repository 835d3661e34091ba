"""Reading `record.json`: every way in which it can be wrong gets one line that names the file and the field."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from onelip.atomic_files import read_regular
from onelip.bench.runs.canonical import parse_json
from onelip.bench.runs.record import RECORD_FILE, SCHEMA_VERSION, RunRecord
from onelip.bench.runs.typed_reading import read_dataclass
from onelip.errors import InvalidInputError

LARGEST_RECORD = 10_000_000
"""Bytes; that of a training with its curve and layers has thousands."""


def read_record(folder: Path) -> RunRecord:
    """The record in a run's folder; an `InvalidInputError` names the file and what is wrong with it."""
    path = folder / RECORD_FILE
    try:
        return _record_from_tree(parse_json(read_regular(path, LARGEST_RECORD).decode("utf-8")))
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path}: damaged: not UTF-8 text") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path}: damaged: not valid JSON ({error})") from error


def _record_from_tree(tree: Any) -> RunRecord:
    if not isinstance(tree, dict) or "schema_version" not in tree:
        raise InvalidInputError("not an onelip record: it has no schema_version")
    fields: dict[str, Any] = dict(tree)
    version, name = fields.pop("schema_version"), fields.pop("name", None)
    if version != SCHEMA_VERSION:
        older = isinstance(version, int) and version < SCHEMA_VERSION
        advice = "an older onelip wrote it; run it again" if older else "update onelip"
        raise InvalidInputError(f"has schema version {version!r:.40}, this onelip reads {SCHEMA_VERSION}: {advice}")
    record = read_dataclass(RunRecord, fields, "damaged: record")
    _ = record.network  # refuses a record without one
    for field in ("created_at", "updated_at"):
        text = getattr(record, field)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise InvalidInputError(f"damaged: {field} is not a time: {text!r:.40}") from error
        if moment.tzinfo is None:
            raise InvalidInputError(f"damaged: {field} has no time zone: {text!r:.40}")
    if record.seed is not None and type(record.seed) is not int:
        raise InvalidInputError(f"damaged: config.seed is not a whole number: {record.seed!r:.40}")
    if record.name != name:
        raise InvalidInputError(f"the configuration does not belong to the name {name!r:.80}; edited by hand?")
    return record
