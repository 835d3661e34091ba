"""The measurements that a study has."""

from __future__ import annotations

import contextlib
import math
import statistics
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
    """The median of the times of this network in the study, whatever the code, rounds and machine."""
    found = [
        seconds
        for record in measurements(study)
        if record.config.get("quantity") == "time"
        and record.network == network
        and record.config.get("batch_size") == batch_size
        and isinstance(seconds := record.metrics.get("seconds_per_epoch"), float)
        and 0 < seconds < math.inf
    ]
    return statistics.median(found) if found else None
