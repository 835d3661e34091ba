"""Jobs that measure time, memory and operations of one network; the records are those of `onelip measure`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onelip.bench.measurement import Measurement, Rounds, run_measurement
from onelip.bench.measurement.memory import GIB
from onelip.bench.measurement.sources import source_stamp
from onelip.bench.records import NetworkSpec, RunRecord, run_name, view
from onelip.bench.records.views import MacsResult, MemoryResult, TimeResult, TooLarge
from onelip.bench.study.estimates import measurements
from onelip.bench.study.job_base import RUNS, Job, JobOptions, JobState, JobStatus
from onelip.errors import InvalidInputError

SHORT_ROUNDS = Rounds(warm_up=1, least=6, most=12, tolerance=0.05, seconds=4.0, inference_batch=256)
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
        return run_name("job", self._identity)

    @property
    def _identity(self) -> dict[str, Any]:
        measurement = self.measurement
        return {**asdict(measurement), "network": measurement.network, "fingerprint": measurement.code}

    @property
    def entry(self) -> dict[str, Any]:
        """The measurement with the fingerprint of its code, and the files that had it."""
        return {"spec": self._identity, "stamp": source_stamp()}

    @property
    def network(self) -> NetworkSpec:
        """What is measured."""
        return self.measurement.network

    @property
    def details(self) -> dict[str, Any]:
        """Quantity and batch."""
        return {"quantity": self.measurement.quantity, "batch_size": self.measurement.batch_size}

    @property
    def uses_device(self) -> bool:
        """Predictions do not."""
        return not self.measurement.is_prediction

    def recorded(self, study: Path) -> JobState:
        """State of the record that was made for this job; of several, by different hardware, one with a result.

        Which of them is the newest says nothing: clocks of different machines differ.
        """
        own = [self.state_from(record) for record in measurements(study, self.network) if record.job == self.name]
        done = [state for state in own if state.status is JobStatus.DONE]
        return (done or own or [JobState(JobStatus.PENDING)])[0]

    def run(self, study: Path, options: JobOptions) -> None:
        """Measure, unless there is a record of the same hardware."""
        run_measurement(self.measurement, study / RUNS, job=self.name)

    def estimated_seconds(self, study: Path) -> float:
        """By experience, XS on a CPU."""
        return _SECONDS[self.measurement.quantity] if self.measurement.rounds is None else _SHORT_SECONDS

    def result(self, record: RunRecord) -> str:
        """Ratios to the plain network, GiB or operations."""
        match view(record).result:
            case TooLarge() as result:
                return f"does not fit: needs {result.needed_bytes / GIB:.1f} GiB"
            case TimeResult() as result:
                training, inference = result.training.ratio.median, result.inference.ratio.median
                return f"training {training:.2f} x plain, inference {inference:.2f} x"
            case MemoryResult() as result:
                return f"training {result.training / GIB:.2f} GiB"
            case MacsResult() as result:
                return f"{result.training_step / 1e9:.3g} GMAC per step"
        raise InvalidInputError(f"{record.kind} is no measurement of a study")
