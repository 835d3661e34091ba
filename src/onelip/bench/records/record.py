"""What is known about one run: the content of its `record.json`, how it is made and how it is read.

Every way in which a file can be wrong gets one line that names the file and the field.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onelip.atomic_files import read_regular
from onelip.bench.records.canonical import dump_json, parse_json, run_name, to_plain
from onelip.bench.records.machine import machine_facts
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.records.typed_reading import read_dataclass
from onelip.errors import InvalidInputError

SCHEMA_VERSION = 2
RECORD_FILE = "record.json"
STUDY_FILE = "study.json"
"""Plan of a study, in the folder above those of its runs."""
LARGEST_RECORD = 10_000_000
"""Bytes; that of a training with its curve and layers has thousands."""
LARGEST_PLAN = 200_000_000
"""Bytes; a training takes some fifteen hundred."""

GENERATION = "generation"
"""Metric of a measurement: one more than that of the measurements of the same figure, by other code, that were there.

It orders records without their times: clocks of different machines differ.
"""


class RunStatus(enum.StrEnum):
    """How a run stands; all but the first two say in `reason` why."""

    RUNNING = "running"
    """Started; work continues, or its process was killed (nobody then holds the lock of the folder)."""
    FINISHED = "finished"
    """Came to its planned end: the only status whose metrics are a result."""
    DIVERGED = "diverged"
    """The loss or the weights became non-finite."""
    FAILED = "failed"
    """Ended by an error."""
    INTERRUPTED = "interrupted"
    """Stopped from outside; the same command continues it."""
    PRUNED = "pruned"
    """Given up early, by a search of an earlier version."""


_NEED_NO_REASON = (RunStatus.RUNNING, RunStatus.FINISHED)


@dataclass(frozen=True)
class RunRecord:
    """Configuration, circumstances and result of one run.

    Args:
        kind: what the run did: "train", "measure", ...
        config: everything that determines the run, as plain values; its hash is part of the folder's name. Its field
            `network` is a `NetworkSpec`; that of a training is a whole `RunSpec`.
        job: name of the study's job that the run belongs to, if it belongs to one.
        command: the command line that made it.
        versions: software versions.
        commit: `{"id", "dirty"}` of onelip's checkout, or None for an installed package.
        machine: the other facts of `records.machine.machine_facts()`, and the kind of device that computed.
        status: how the run stands.
        reason: one line for every status but running and finished.
        metrics: results by name; NaN and infinity are allowed.
        model_sha256: of the file with the weights, for a finished training; it is checked whenever the file is read.
        seconds: wall-clock time of the run over all of its sessions.
        created_at: UTC, ISO 8601.
        updated_at: UTC, ISO 8601.
    """

    kind: str
    config: dict[str, Any]
    job: str | None
    command: list[str]
    versions: dict[str, str]
    commit: dict[str, Any] | None
    machine: dict[str, Any]
    status: RunStatus
    reason: str | None
    metrics: dict[str, Any]
    model_sha256: str | None
    seconds: float
    created_at: str
    updated_at: str

    def __post_init__(self) -> None:
        if self.status not in _NEED_NO_REASON and not self.reason:
            raise InvalidInputError(f"a run with the status {self.status.value} needs a reason")

    @property
    def name(self) -> str:
        """Name of the folder that holds the run."""
        return run_name(self.kind, self.config)

    @functools.cached_property
    def network(self) -> NetworkSpec:
        """The network that was trained or measured."""
        return read_dataclass(NetworkSpec, self.config.get("network"), "config.network")

    @property
    def seed(self) -> int | None:
        """The random seed, where the configuration has one."""
        return self.config.get("seed")

    def changed(self, **changes: Any) -> RunRecord:
        """A copy with these fields replaced and a new time stamp."""
        if "metrics" in changes:
            changes["metrics"] = to_plain(changes["metrics"], "metrics")
        return dataclasses.replace(self, **changes, updated_at=_now())

    def to_json(self) -> str:
        """Text of `record.json`."""
        header = {"schema_version": SCHEMA_VERSION, "name": self.name}
        return dump_json(header | dataclasses.asdict(self), where="record") + "\n"


def new_record(kind: str, config: Any, job: str | None = None, device: str | None = None) -> RunRecord:
    """Record of a run that starts now on this machine; `config` is a dataclass or a dict, `device` a kind of device."""
    run_name(kind, config)  # refuses a bad configuration before anything else
    facts, now = machine_facts(), _now()
    record = RunRecord(
        kind=kind,
        config=to_plain(config),
        job=job,
        command=list(sys.argv),
        versions=facts.pop("versions"),
        commit=facts.pop("commit"),
        machine=facts | {"device": device},
        status=RunStatus.RUNNING,
        reason=None,
        metrics={},
        model_sha256=None,
        seconds=0.0,
        created_at=now,
        updated_at=now,
    )
    _ = record.network  # refuses a configuration without one
    return record


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


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
