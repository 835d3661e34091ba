"""What a folder of runs tells, as typed rows; `read_study.py` fills them from records.

Every value was checked when it was read: numbers are finite, texts are printable and short. Accuracies are fractions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from onelip.bench.report.intervals import MedianTime
from onelip.bench.runs import RunStatus
from onelip.bench.runs.specs import NetworkSpec
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
    """One finished training. `setting` is its configuration without the seed; `curve` certified accuracy by radius."""

    run: str
    network: NetworkSpec
    budget: Budget
    setting: str
    recipe: str | None
    learning_rate: float | None
    weight_decay: float | None
    test_images: int | None
    accuracy: float | None
    certified: dict[int, float]
    curve: tuple[float, ...]
    validation_certified: float | None
    epochs: float | None
    train_seconds: float | None
    log: tuple[LoggedEpoch, ...]

    @property
    def losses(self) -> list[tuple[float, float]]:
        """(share of the training, loss) for each entry of the log."""
        last = max((entry.epoch for entry in self.log), default=0.0)
        return [(entry.epoch / last, entry.loss) for entry in self.log] if last > 0 else []


@dataclass(frozen=True)
class PhaseTime:
    """Seconds of a batch, of the plain network's batch, and their ratio, measured in turns."""

    seconds: MedianTime
    plain_seconds: MedianTime
    ratio: MedianTime


@dataclass(frozen=True)
class MeasuredTime:
    """Times of a network on one machine; inference has its parameter transformations cached."""

    network: NetworkSpec
    batch_size: int
    hardware: str
    training: PhaseTime
    inference: PhaseTime
    epoch_seconds: float


PREDICTED_SOURCES = {"meta": "predicted", "meta:gpu": "predicted for a GPU"}
"""What the devices of predictions are called."""


@dataclass(frozen=True)
class MeasuredMemory:
    """Peak bytes of training and of inference, measured on a device or predicted."""

    network: NetworkSpec
    batch_size: int
    device: str
    parameters: int
    training: int
    inference: int

    @property
    def source(self) -> str:
        """Where the figures are from."""
        return self.device if self.device in PREDICTED_SOURCES.values() else f"measured on {self.device}"


@dataclass(frozen=True)
class CountedOperations:
    """Multiply-accumulates of one batch."""

    network: NetworkSpec
    batch_size: int
    parameters: int
    input: int
    training_step: int
    inference: int


@dataclass(frozen=True)
class DiagnosedLayer:
    """Batch variance after a layer, its norm (from below), the proven bound of the network so far, its gradient."""

    path: str
    variance: float
    norm_estimate: float | None
    bound_product: float | None
    gradient_norm: float | None


@dataclass(frozen=True)
class DiagnosedNetwork:
    """The layers of one network; the input is the first. `setting` is "own" or "published"."""

    run: str
    network: NetworkSpec
    setting: str
    layers: tuple[DiagnosedLayer, ...]


@dataclass(frozen=True)
class MissingResult:
    """A run without a result, or a record that cannot be read, and why."""

    status: str
    reason: str
    kind: str = ""
    network: NetworkSpec | None = None
    run: str = ""


@dataclass(frozen=True)
class RunFacts:
    """What is told about every run: where it was made, how, and how long it took."""

    run: str
    kind: str
    status: RunStatus
    seed: int | None
    seconds: float
    created_at: str
    updated_at: str
    command: str
    machine: tuple[str, ...]


@dataclass(frozen=True)
class StudyResults:
    """All that a folder of runs tells; `notes` are what the plan of a study asks its readers to know.

    `mixed_devices` warns of time budgets on several kinds of device; `trained` has those of one kind.
    """

    folder: Path
    runs: tuple[RunFacts, ...] = ()
    trained: tuple[TrainedRun, ...] = ()
    times: tuple[MeasuredTime, ...] = ()
    memory: tuple[MeasuredMemory, ...] = ()
    operations: tuple[CountedOperations, ...] = ()
    diagnosed: tuple[DiagnosedNetwork, ...] = ()
    missing_results: tuple[MissingResult, ...] = ()
    notes: tuple[str, ...] = field(default=())
    mixed_devices: str = ""

    @property
    def absent(self) -> list[str]:
        """One sentence for each kind of result that the folder does not have."""
        kinds = [
            (self.trained, "No finished training, so no accuracies. `onelip train` adds them."),
            (
                self.times,
                "No measured times, so no training time, throughput or latency. `onelip measure time` adds them.",
            ),
            (
                self.memory,
                "No memory figures of these runs: the advisor takes predictions. `onelip measure memory` adds them.",
            ),
            (self.operations, "No operation counts. `onelip measure macs` adds them."),
            (
                self.diagnosed,
                "No diagnostics (variances, norms and gradients by layer). `onelip compare` makes them.",
            ),
        ]
        return [sentence for rows, sentence in kinds if not rows]
