"""What a folder of runs tells, as typed rows; `evidence.py` fills them from records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelip.bench.runs import StoredRun


@dataclass(frozen=True)
class TrainingRow:
    """One finished training run. Accuracies are fractions; what was not recorded is None."""

    run: str
    method: str
    size: str
    dataset: str
    kernel_size: int
    budget: str
    budget_hours: float | None
    learning_rate: float | None
    weight_decay: float | None
    seed: int | None
    setting: tuple[tuple[str, str], ...]
    accuracy: float | None
    certified: dict[int, float]
    validation_certified: float | None
    epochs: float | None
    train_seconds: float | None
    lipschitz_bound: float | None
    history: tuple[dict[str, Any], ...]
    created_at: str


@dataclass(frozen=True)
class CostKey:
    """What a measurement was made of."""

    method: str
    size: str
    dataset: str
    batch_size: int


@dataclass(frozen=True)
class TimeRow:
    """Median seconds of a batch, and the ratio to the plain network with its 95 % interval."""

    key: CostKey
    hardware: str
    train_seconds: float
    train_ratio: tuple[float, float, float]
    inference_seconds: float
    inference_ratio: tuple[float, float, float]
    images_per_second: float
    epoch_seconds: float
    reference_train_seconds: float
    reference_inference_seconds: float


@dataclass(frozen=True)
class MemoryRow:
    """Peak bytes of training and of inference, measured on a device or predicted."""

    key: CostKey
    source: str
    parameters: int
    training: int
    inference: int


@dataclass(frozen=True)
class MacsRow:
    """Multiply-accumulates of one batch."""

    key: CostKey
    parameters: int
    input: int
    training_step: int
    inference: int


@dataclass(frozen=True)
class DiagnosticRow:
    """Layer by layer: variance, norms and gradients of one network; the input is the first layer."""

    run: str
    method: str
    size: str
    dataset: str
    layers: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class TroubleRow:
    """A run without a result, and why."""

    run: str
    kind: str
    method: str
    size: str
    dataset: str
    status: str
    reason: str


@dataclass(frozen=True)
class Evidence:
    """All that a folder of runs tells; `notes` are what the plan of a study asks its readers to know."""

    folder: Path
    runs: tuple[StoredRun, ...]
    training: tuple[TrainingRow, ...] = ()
    times: tuple[TimeRow, ...] = ()
    memory: tuple[MemoryRow, ...] = ()
    macs: tuple[MacsRow, ...] = ()
    diagnostics: tuple[DiagnosticRow, ...] = ()
    trouble: tuple[TroubleRow, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """One sentence for each kind of evidence that the folder does not have."""
        absent = [
            (self.training, "No finished training run: no accuracies. Add some with `onelip train`."),
            (
                self.times,
                "No measured times: no training time, throughput or latency. `onelip measure time` adds them.",
            ),
            (self.memory, "No memory figures. `onelip measure memory` measures, with `--predict` it predicts them."),
            (self.macs, "No operation counts. `onelip measure macs` adds them."),
            (self.diagnostics, "No layer diagnostics (variances, spectral norms per layer) were recorded."),
        ]
        return [sentence for rows, sentence in absent if not rows]
