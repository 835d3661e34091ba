"""Jobs that measure time, memory and operations of one network; the records are those of `onelip measure`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onelip.bench.measurement import Measurement, Rounds, run_measurement
from onelip.bench.measurement.measurements import fingerprint
from onelip.bench.measurement.memory_limits import GIB
from onelip.bench.runs import NetworkSpec, RunRecord, run_name
from onelip.bench.study.job_base import RUNS, Job, JobFailed, JobOptions, JobState, JobStatus, state_from
from onelip.bench.study.measured import measurements

SHORT_ROUNDS = Rounds(warm_up=1, least=6, most=12, tolerance=0.05, seconds=4.0)
"""A rough ratio in seconds, for a first look. Six rounds are the fewest that give a 95 % interval of a median."""

_SECONDS = {"time": 60.0, "memory": 5.0, "macs": 5.0}
_SHORT_SECONDS = 8.0


@dataclass(frozen=True)
class MeasureJob(Job):
    """One quantity of one network. The record, and not the job, names the hardware: that of whoever does the job."""

    measurement: Measurement
    device: str = "cpu"

    kind = "measure"

    def make_name(self) -> str:
        """By the measurement and the code that is measured, so that a change of it makes a new job."""
        measurement = self.measurement
        code = fingerprint(measurement.quantity, measurement.network.method, measurement.network.model)
        return run_name("job", {**asdict(measurement), "network": measurement.network, "fingerprint": code})

    @property
    def network(self) -> NetworkSpec:
        """What is measured."""
        return self.measurement.network

    @property
    def details(self) -> dict[str, Any]:
        """Quantity and batch."""
        return {"quantity": self.measurement.quantity, "batch_size": self.measurement.batch_size}

    @property
    def runs_alone(self) -> bool:
        """Times do."""
        return self.measurement.quantity == "time"

    @property
    def uses_device(self) -> bool:
        """Predictions do not."""
        return not self.measurement.is_prediction

    def folder(self, study: Path) -> Path | None:
        """Nobody knows before it is done: the hardware is part of the name."""
        return None

    def recorded(self, study: Path) -> JobState:
        """State of the record that was made for this job; of several, by different hardware, one with a result.

        Which of them is the newest says nothing: clocks of different machines differ.
        """
        own = [state_from(record, _result) for record in measurements(study) if record.job == self.name]
        done = [state for state in own if state.status is JobStatus.DONE]
        return (done or own or [JobState(JobStatus.PENDING)])[0]

    def run(self, study: Path, options: JobOptions) -> None:
        """Measure, unless there is a record of the same hardware."""
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
