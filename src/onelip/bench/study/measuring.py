"""Jobs that measure time, memory and operations of one network; the records are those of `onelip measure`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.bench.measurement import Measurement, Rounds, run_measurement
from onelip.bench.measurement.memory_limits import GIB
from onelip.bench.runs import RECORD_FILE, NetworkSpec, RunRecord, read_record, run_name
from onelip.bench.study.jobs import RUNS, Circumstances, Job, JobFailed, JobState, state_of_record

SHORT_ROUNDS = Rounds(warm_up=1, least=6, most=12, tolerance=0.05, seconds=4.0)
"""A rough ratio in seconds, for a first look. Six rounds are the fewest that give a 95 % interval of a median."""

_SECONDS = {"time": 60.0, "memory": 5.0, "macs": 5.0}
_SHORT_SECONDS = 8.0


@dataclass(frozen=True)
class MeasureJob(Job):
    """One quantity of one network."""

    measurement: Measurement

    kind = "measure"

    def make_name(self) -> str:
        """Name of the record."""
        return run_name("measure", self.measurement.config())

    @property
    def network(self) -> NetworkSpec:
        """What is measured."""
        return self.measurement.network

    @property
    def facts(self) -> dict[str, Any]:
        """Quantity and batch size."""
        return {"quantity": self.measurement.quantity, "batch_size": self.measurement.batch_size}

    def recorded(self, study: Path) -> JobState:
        """State of the record."""
        return state_of_record(study / RUNS / self.name, _result)

    def run(self, study: Path, how: Circumstances) -> None:
        """Measure, unless there is a record."""
        outcome = run_measurement(self.measurement, study / RUNS, job=self.name)
        if outcome.failure:
            raise JobFailed(outcome.failure)

    def estimated_seconds(self, study: Path) -> float:
        """By experience, XS on a CPU."""
        return _SECONDS[self.measurement.quantity] if self.measurement.rounds is None else _SHORT_SECONDS


def _result(record: RunRecord) -> str:
    metrics, quantity = record.metrics, record.config["quantity"]
    if not metrics["fits"]:
        return f"does not fit: needs {metrics['needed_bytes'] / GIB:.1f} GiB"
    if quantity == "time":
        training, inference = (metrics[phase]["ratio"]["median"] for phase in ("training", "inference"))
        return f"training {training:.2f} x plain, inference {inference:.2f} x"
    if quantity == "memory":
        return f"training {metrics['training'] / GIB:.2f} GiB"
    return f"{metrics['training_step'] / 1e9:.3g} GMAC per step"


def seconds_per_epoch(study: Path, network: NetworkSpec, batch_size: int) -> float | None:
    """From the newest measured time of this network in the study, whatever the code and rounds."""
    found = []
    for path in (study / RUNS).glob(f"measure-*/{RECORD_FILE}"):
        record = read_record(path.parent)
        is_same = record.network == network and record.config["batch_size"] == batch_size
        if is_same and record.config["quantity"] == "time" and record.metrics.get("fits"):
            found.append((record.updated_at, record.metrics["seconds_per_epoch"]))
    return max(found)[1] if found else None
