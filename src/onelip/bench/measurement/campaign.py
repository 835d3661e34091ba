"""Measuring many combinations: one record each, finished ones are not measured again, too large ones are named.

The identity of a measurement holds what its figure depends on: the workload, the code that was measured (a hash of
its source) and, for times, the processor and the number of threads. So a rerun continues an interrupted campaign,
and a change of code or machine starts new records instead of showing old figures.
"""

from __future__ import annotations

import functools
import hashlib
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

import onelip
from onelip.bench.measurement.macs import count_network
from onelip.bench.measurement.memory import (
    MemoryUse,
    available_memory,
    fits,
    measure_memory,
    predict_memory,
    smallest_card,
)
from onelip.bench.measurement.throughput import Rounds, measure_throughput
from onelip.bench.measurement.workload import Workload
from onelip.bench.runs import RunStatus, start_run
from onelip.bench.runs.machine import machine_facts
from onelip.errors import one_line

Quantity = Literal["time", "memory", "macs"]

_MEASURED_CODE = ("linalg", "layers", "convnet_config", "models", "measurement")


@dataclass(frozen=True)
class Job:
    """One quantity of one workload, on a device or predicted without one; `rounds` replace the usual ones of a time."""

    quantity: Quantity
    workload: Workload
    device: str = "cpu"
    predicted: bool = False
    rounds: Rounds | None = None

    def config(self) -> dict[str, Any]:
        """What identifies the measurement, as plain values."""
        config: dict[str, Any] = {
            "quantity": self.quantity,
            "network": self.workload.network.as_dict(),
            "batch_size": self.workload.batch_size,
            "code": code_fingerprint(),
        }
        if self.quantity == "memory":
            config["predicted"] = self.predicted
        if self.quantity == "time" or (self.quantity == "memory" and not self.predicted):
            config["device"] = self.device
            config["hardware"] = _hardware(torch.device(self.device))
        if self.rounds is not None:
            config["rounds"] = asdict(self.rounds)
        return config


@dataclass(frozen=True)
class Outcome:
    """Result of a job: metrics, or why there are none; `is_new` is false if it was read from a record.

    A combination that does not fit has the metrics {"fits": False, "needed_bytes", "available_bytes"}.
    """

    job: Job
    metrics: dict[str, Any]
    failure: str | None
    is_new: bool
    folder: Path

    @property
    def fits(self) -> bool:
        """Whether there are figures."""
        return self.failure is None and bool(self.metrics.get("fits"))


@functools.lru_cache(maxsize=1)
def code_fingerprint() -> str:
    """Hash of the source files that decide how much time and memory a network takes."""
    package = Path(onelip.__file__).parent
    files = sorted(path for path in package.rglob("*.py") if path.relative_to(package).parts[0] in _names())
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _names() -> set[str]:
    return {*_MEASURED_CODE, *(f"{name}.py" for name in _MEASURED_CODE)}


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    facts = machine_facts()
    return f"{facts['cpu']}, {facts['torch_threads']} threads"


def run_job(job: Job, runs_dir: Path, study_job: str | None = None) -> Outcome:
    """Measure one job, or read its record; an error in it is an outcome too, so that other jobs go on.

    `study_job` is the name of the study's job that this is, for the record.
    """
    with start_run(runs_dir, "measure", job.config(), job=study_job) as run:
        if run.record.status is RunStatus.FINISHED and not _may_fit_now(job, run.record.metrics):
            return Outcome(job, run.record.metrics, None, False, run.folder)
        start = time.monotonic()
        try:
            metrics = _measure(job)
        except Exception as error:  # named in the record and in the table
            reason = one_line(error)
            run.update(status=RunStatus.FAILED, reason=reason, seconds=time.monotonic() - start)
            return Outcome(job, {}, reason, True, run.folder)
        run.update(status=RunStatus.FINISHED, metrics=metrics, seconds=time.monotonic() - start)
        return Outcome(job, run.record.metrics, None, True, run.folder)


def _may_fit_now(job: Job, metrics: dict[str, Any]) -> bool:
    """Whether a combination that was too large may be tried again, because more memory is free."""
    if metrics.get("fits"):
        return False
    return fits(metrics["needed_bytes"], available_memory(torch.device(job.device)))


def _measure(job: Job) -> dict[str, Any]:
    if job.quantity == "macs":
        return {"fits": True, **asdict(count_network(job.workload))}
    if job.predicted:
        return _memory_metrics(predict_memory(job.workload))
    return _measure_on_device(job, torch.device(job.device))


def _measure_on_device(job: Job, device: torch.device) -> dict[str, Any]:
    needed = _predicted_training(job.workload)
    if job.quantity == "time":
        needed += _predicted_training(job.workload.reference)
    available = available_memory(device)
    too_large = {"fits": False, "needed_bytes": needed, "available_bytes": available}
    if not fits(needed, available):
        return too_large
    try:
        if job.quantity == "memory":
            return _memory_metrics(measure_memory(job.workload, device))
        return {"fits": True, **asdict(measure_throughput(job.workload, device, job.rounds))}
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return too_large


@functools.lru_cache(maxsize=64)
def _predicted_training(workload: Workload) -> int:
    return predict_memory(workload).training


def _memory_metrics(use: MemoryUse) -> dict[str, Any]:
    return {"fits": True, **asdict(use), "smallest_card_gib": smallest_card(use.training)}
