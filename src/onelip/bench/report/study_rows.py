"""What a folder of runs tells, as typed rows; `read_study.py` fills them from records.

Every value was checked when it was read: numbers are finite, texts are printable and short. Accuracies are fractions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from onelip.bench.records import StoredRun
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.records.views import (
    PREDICTED_SOURCES,
    DiagnosedLayer,
    MacsResult,
    Measured,
    MemoryResult,
    TimeResult,
    Training,
    TrainResult,
)
from onelip.protocol import REFERENCE

WITHOUT_GUARANTEE = ("standard", REFERENCE)
"""The plain network: as trained by onelip, and as the fixed reference of all costs."""

_UNITS = {"h": "h", "m": "min", "s": "s"}


@dataclass(frozen=True)
class Budget:
    """A training budget: a time, or epochs with the hours that they took (None where this was not recorded).

    Processor time is named "8m cores", so that it is never taken for time on the clock.
    """

    name: str
    hours: float | None
    epochs: int | None = None

    @property
    def is_processor_time(self) -> bool:
        """Whether other programs take nothing from it."""
        return self.name.endswith(" cores")

    @property
    def words(self) -> str:
        """As a sentence has it: "1h30m" is "1 h 30 min", "8m cores" is "8 min of processor time"."""
        duration, cores, _ = self.name.partition(" cores")
        spaced = re.sub(r"([\d.]+)([hms])(?=\d|$)", lambda part: f"{part[1]} {_UNITS[part[2]]} ", duration).strip()
        return f"{spaced} of processor time" if cores else spaced


@dataclass(frozen=True)
class LoggedEpoch:
    """An entry of a log: epochs done, mean loss since the last one, certified share of validation images at 36/255."""

    epoch: float
    loss: float
    certified: float | None


@dataclass(frozen=True)
class TrainedRun:
    """One finished training. `setting` is its configuration without the seed."""

    spec: Training
    result: TrainResult
    budget: Budget
    setting: str
    log: tuple[LoggedEpoch, ...] = ()

    @property
    def network(self) -> NetworkSpec:
        """What was trained."""
        return self.spec.network

    @property
    def processor_share(self) -> float | None:
        """The part of the training in which its first thread had a processor."""
        return self.result.processor_share

    @property
    def losses(self) -> list[tuple[float, float]]:
        """(share of the training, loss) for each entry of the log."""
        last = max((entry.epoch for entry in self.log), default=0.0)
        return [(entry.epoch / last, entry.loss) for entry in self.log] if last > 0 else []


@dataclass(frozen=True, kw_only=True)
class MeasuredTime(Measured, TimeResult):
    """Times of a network on one machine; inference has its parameter transformations cached."""

    @property
    def inference_batch(self) -> int:
        """Images in a batch of inference."""
        return self.batch_size if self.inference_batch_size is None else self.inference_batch_size

    @property
    def images_per_second(self) -> float:
        """Throughput of inference."""
        return self.inference_batch / self.inference.seconds.median


@dataclass(frozen=True, kw_only=True)
class MeasuredMemory(Measured, MemoryResult):
    """Peak bytes of training and of inference, measured on a device or predicted."""

    @property
    def source(self) -> str:
        """Where the figures are from."""
        return self.device if self.device in PREDICTED_SOURCES.values() else f"measured on {self.device}"


@dataclass(frozen=True, kw_only=True)
class CountedOperations(Measured, MacsResult):
    """Multiply-accumulates of one batch."""


@dataclass(frozen=True)
class DiagnosedNetwork:
    """The layers of one network; the input is the first. `setting` is "own" or "published"."""

    run: str
    network: NetworkSpec
    setting: str
    layers: tuple[DiagnosedLayer, ...]

    def known(self, field: str) -> list[float]:
        """Values of all layers that have one, after the input."""
        return [value for layer in self.layers[1:] if (value := getattr(layer, field)) is not None]


@dataclass(frozen=True)
class MissingResult:
    """A run without a result, or a record that cannot be read, and why."""

    status: str
    reason: str
    kind: str = ""
    network: NetworkSpec | None = None
    run: str = ""


_ABSENT = (
    "No finished training, so no accuracies. `onelip train` adds them.",
    "No measured times, so no training time, throughput or latency. `onelip measure time` adds them.",
    "No memory figures of these runs: the advisor takes predictions. `onelip measure memory` adds them.",
    "No operation counts. `onelip measure macs` adds them.",
    "No diagnostics (variances, norms and gradients by layer). `onelip compare` makes them.",
)


@dataclass(frozen=True)
class StudyResults:
    """All that a folder of runs tells; `notes` are what the plan of a study asks its readers to know.

    `mixed_devices` warns of time budgets on several kinds of device; `trained` has those of one kind.
    """

    folder: Path
    runs: tuple[StoredRun, ...] = ()
    trained: tuple[TrainedRun, ...] = ()
    times: tuple[MeasuredTime, ...] = ()
    memory: tuple[MeasuredMemory, ...] = ()
    operations: tuple[CountedOperations, ...] = ()
    diagnosed: tuple[DiagnosedNetwork, ...] = ()
    missing_results: tuple[MissingResult, ...] = ()
    notes: tuple[str, ...] = ()
    mixed_devices: str = ""

    @property
    def absent(self) -> list[str]:
        """One sentence for each kind of result that the folder does not have."""
        rows = (self.trained, self.times, self.memory, self.operations, self.diagnosed)
        return [sentence for sentence, found in zip(_ABSENT, rows, strict=True) if not found]
