"""What is known of jobs before they run: what a study has measured, how long a training takes, the memory it needs."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import statistics
import time
from pathlib import Path
from typing import Any, Literal

from onelip.bench.measurement import PREDICTED, PREDICTED_ON_GPU, Measurement, measure
from onelip.bench.paper.published import predicted_training_memory
from onelip.bench.records import NetworkSpec, RunRecord, run_name
from onelip.bench.records.store import known_record
from onelip.bench.study.job_base import RUNS, Job
from onelip.errors import InvalidInputError
from onelip.protocol import REFERENCE

KIND = "measure"

_RACY_NANOSECONDS = 2_000_000_000
"""A folder that changed so shortly before it was listed may have changed again at the same time stamp."""

_listed: dict[Path, tuple[int, dict[str, list[Path]]]] = {}


def measurements(study: Path, network: NetworkSpec) -> list[RunRecord]:
    """All readable records of measurements of this network; `onelip report` names those that are not."""
    found = []
    for folder in _folders(study / RUNS).get(_readable(run_name(KIND, {"network": network})), ()):
        with contextlib.suppress(InvalidInputError):
            found.append(known_record(folder))
    return [record for record in found if record is not None and record.network == network]


def _folders(runs: Path) -> dict[str, list[Path]]:
    """The folders of measurements by the readable part of their names; listed again when one was added."""
    try:
        changed = runs.stat().st_mtime_ns
    except FileNotFoundError:
        return {}
    if runs not in _listed or _listed[runs][0] != changed:
        found: dict[str, list[Path]] = {}
        for name in sorted(name for name in os.listdir(runs) if name.startswith(f"{KIND}-")):
            found.setdefault(_readable(name), []).append(runs / name)
        _listed[runs] = (changed if time.time_ns() - changed > _RACY_NANOSECONDS else 0, found)
    return _listed[runs][1]


def _readable(name: str) -> str:
    return name.rpartition("-")[0]


def _figures(study: Path, network: NetworkSpec, quantity: str, batch_size: int | None, name: str) -> list[Any]:
    """One metric of all measurements of this quantity, whatever the code, rounds and machine."""
    wanted = {"quantity": quantity, "batch_size": batch_size}
    records = [record for record in measurements(study, network) if wanted.items() <= record.config.items()]
    return [record.metrics.get(name) for record in records]


def training_bytes(study: Path, network: NetworkSpec, batch_size: int | None) -> int:
    """Most bytes that a training of this network was predicted or measured to take; 0 if the study has not looked."""
    found = _figures(study, network, "memory", batch_size, "training")
    return max((needed for needed in found if isinstance(needed, int)), default=0)


def seconds_per_epoch(study: Path, network: NetworkSpec, batch_size: int) -> float | None:
    """The median of the times of this network in the study."""
    found = _figures(study, network, "time", batch_size, "seconds_per_epoch")
    usable = [seconds for seconds in found if isinstance(seconds, float) and 0 < seconds < math.inf]
    return statistics.median(usable) if usable else None


_SHIPPED_BATCH = 256


def predicted_bytes(job: Job) -> int | None:
    """Peak of live tensors in training; None for jobs that run no network."""
    if not job.uses_device or job.network.method == REFERENCE:
        return None
    return _training_bytes(job.network, int(job.details["batch_size"]), "cpu" if job.device == "cpu" else "gpu")


@functools.cache
def _training_bytes(network: NetworkSpec, batch_size: int, place: Literal["cpu", "gpu"]) -> int:
    """From the shipped table for the paper's networks, else by the account of `onelip measure memory --predict`."""
    method, size = network.method, network.size
    if (
        batch_size == _SHIPPED_BATCH
        and size
        and network == NetworkSpec(method=method, size=size, dataset=network.dataset)
    ):
        shipped = predicted_training_memory(place).get((method, size, network.data.image_size))
        if shipped is not None:
            return shipped
    device = PREDICTED if place == "cpu" else PREDICTED_ON_GPU
    return measure(Measurement("memory", network, batch_size, device))["training"]
