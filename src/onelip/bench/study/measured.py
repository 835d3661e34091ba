"""The measurements that a study has."""

from __future__ import annotations

import contextlib
from pathlib import Path

from onelip.bench.runs import NetworkSpec, RunRecord
from onelip.bench.study.job_base import RUNS
from onelip.bench.study.known_records import known_record
from onelip.errors import InvalidInputError

KIND = "measure"


def measurements(study: Path) -> list[RunRecord]:
    """All readable records of measurements; `onelip report` names those that are not."""
    found = []
    for folder in sorted((study / RUNS).glob(f"{KIND}-*")):
        with contextlib.suppress(InvalidInputError):
            found.append(known_record(folder))
    return [record for record in found if record is not None]


def seconds_per_epoch(study: Path, network: NetworkSpec, batch_size: int) -> float | None:
    """From the newest measured time of this network in the study, whatever the code and rounds."""
    found = [
        (record.updated_at, record.metrics["seconds_per_epoch"])
        for record in measurements(study)
        if record.config["quantity"] == "time"
        and record.metrics.get("fits")
        and record.network == network
        and record.config["batch_size"] == batch_size
    ]
    return max(found)[1] if found else None
