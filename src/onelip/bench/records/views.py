"""What a record says, typed by its kind: what was run and what came out, for the driver, the report and the advisor.

Metrics and fields of configurations that are not named here are allowed, and stay in the record. What is named is
checked: a number is a number, a share lies between 0 and 1, and a message names the field.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from onelip.bench.records.record import RunRecord
from onelip.bench.records.specs import NetworkSpec
from onelip.bench.records.typed_reading import Check, read_dataclass
from onelip.bench.terminal import visible
from onelip.errors import InvalidInputError
from onelip.protocol import RADIUS_NUMERATORS

LONGEST_NAME = 80


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


Number = Annotated[float, Check(math.isfinite, "a finite number")]
Finite = Annotated[float | None, _finite]
"""None where a training ended with NaN or infinity, which are legal."""
Share = Annotated[Finite, Check(lambda value: value is None or 0 <= value <= 1, "a share from 0 to 1")]
Positive = Annotated[float, Check(lambda value: 0 < value < math.inf, "a positive number")]
NotNegative = Annotated[float, Check(lambda value: 0 <= value < math.inf, "0 or more")]
Low = Annotated[float, lambda value: value if math.isfinite(value) else -math.inf]
High = Annotated[float, lambda value: value if math.isfinite(value) else math.inf]
Count = Annotated[int, Check(lambda value: 0 <= value < 2**63, "a whole number of 0 or more")]
Name = Annotated[str, Check(lambda text: 0 < len(text) <= LONGEST_NAME, f"a name of 1 to {LONGEST_NAME} letters")]
Curve = Annotated[list[Share], Check(lambda shares: len(shares) <= 1000, "a list of at most 1000 shares")]

PREDICTED_SOURCES = {"meta": "predicted", "meta:gpu": "predicted for a GPU"}
"""What the devices of predictions are called."""

Device = Annotated[Name, lambda name: visible(PREDICTED_SOURCES.get(name, name))]
Hardware = Annotated[str, lambda text: visible(text).replace(", 1 threads", ", 1 thread")]

_open = partial(read_dataclass, is_open=True)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What was trained, as far as readers of results need it."""

    network: NetworkSpec
    budget: Name | None = None
    clock: Name = "time"
    epochs: Count | None = None
    recipe: str | None = None
    lr: Finite = None
    weight_decay: Finite = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured, and on what."""

    network: NetworkSpec
    quantity: Name
    batch_size: Count
    device: Device = "cpu"
    hardware: Hardware = "unknown hardware"


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Seconds of the computing thread and on the clock; records of GPUs have none of a thread."""

    thread_seconds: Finite = None
    wall_seconds: Finite = None

    @property
    def processor_share(self) -> float | None:
        """The part of the time in which the computing thread had a processor, None where nobody knows."""
        had, passed = self.thread_seconds, self.wall_seconds
        return None if had is None or not passed or passed < 0 else min(max(had / passed, 0.0), 1.0)


@dataclass(frozen=True, kw_only=True)
class TrainResult(Timed):
    """Of a training; what was not done, such as certification, is None."""

    test_images: Count | None = None
    test_accuracy: Share = None
    test_certified_accuracy_36: Share = None
    test_certified_accuracy_72: Share = None
    test_certified_accuracy_108: Share = None
    test_certified_accuracy_255: Share = None
    test_certified_curve: Curve = field(default_factory=list)
    validation_certified_accuracy_36: Share = None
    epochs: Finite = None
    train_seconds: Finite = None
    core_seconds: Finite = None
    test_lipschitz_bound: Finite = None

    @property
    def certified(self) -> dict[int, float]:
        """Certified accuracy at those of the paper's radii, in units of 1/255, at which it is known."""
        shares = {radius: getattr(self, f"test_certified_accuracy_{radius}") for radius in RADIUS_NUMERATORS}
        return {radius: share for radius, share in shares.items() if share is not None}


@dataclass(frozen=True)
class MedianTime:
    """Median of repeated measurements and its 95 % interval, which is infinite for fewer than six of them."""

    median: Positive
    low: Low = -math.inf
    high: High = math.inf

    @property
    def is_bounded(self) -> bool:
        """Whether there were enough measurements for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})" if self.is_bounded else f"{self.median:.2f}"


@dataclass(frozen=True)
class PhaseTime:
    """Seconds of a batch, of the plain network's batch, and their ratio, measured in turns."""

    seconds: MedianTime
    reference_seconds: MedianTime
    ratio: MedianTime


@dataclass(frozen=True)
class Fused:
    """The fused network relative to the plain one."""

    ratio: MedianTime


@dataclass(frozen=True, kw_only=True)
class TimeResult(Timed):
    """Of a measurement of time."""

    training: PhaseTime
    inference: PhaseTime
    seconds_per_epoch: Number
    inference_batch_size: Count | None = None
    fused: Fused | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryResult:
    """Bytes."""

    parameters: Count
    training: Count
    inference: Count


@dataclass(frozen=True, kw_only=True)
class MacsResult:
    """Multiply-accumulates of one batch."""

    parameters: Count
    input: Count
    training_step: Count
    inference: Count


@dataclass(frozen=True, kw_only=True)
class TooLarge:
    """A network that did not fit."""

    needed_bytes: Number
    available_bytes: Number


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The point that won."""

    lr: Positive
    weight_decay: NotNegative


@dataclass(frozen=True, kw_only=True)
class DiagnosedLayer:
    """Batch variance after a layer, its norm (from below), the proven bound of the network so far, its gradient."""

    path: Annotated[str, visible] = ""
    variance: Number
    norm_estimate: Finite = None
    bound_product: Finite = None
    gradient_norm: Finite = None


@dataclass(frozen=True)
class View:
    """What was run and what came out; None for kinds that are not onelip's own."""

    spec: Training | Measured | None
    result: TrainResult | TimeResult | MemoryResult | MacsResult | TooLarge | SearchResult | None


_MEASURED = {"time": TimeResult, "memory": MemoryResult, "macs": MacsResult}


def view(record: RunRecord) -> View:
    """What a finished record says; `InvalidInputError` names what it lacks or what is not as it should be."""
    config = record.config | {"network": shown_network(record.network).as_dict()}
    if record.kind == "train":
        return View(_open(Training, config, "config"), _open(TrainResult, record.metrics, "metrics"))
    if record.kind == "search":
        return View(None, _open(SearchResult, record.metrics, "metrics"))
    if record.kind != "measure":
        return View(None, None)
    config = {name: value for name, value in config.items() if value is not None}
    spec = _open(Measured, config, "config")
    kind = TooLarge if record.metrics.get("fits") is not True else _MEASURED.get(spec.quantity)
    return View(spec, None if kind is None else _open(kind, record.metrics, "metrics"))


def diagnosed_layers(records: object) -> tuple[DiagnosedLayer, ...]:
    """The layers of `Diagnostics.as_records()`, as a record holds them."""
    if not isinstance(records, list) or len(records) > 2000:
        raise InvalidInputError("metrics.diagnostics is no list of at most 2000 layers")
    return tuple(_open(DiagnosedLayer, layer, f"diagnostics[{index}]") for index, layer in enumerate(records))


def shown_network(network: NetworkSpec) -> NetworkSpec:
    """A network of a file, with texts that can be shown: short, and with what cannot be printed written out."""
    texts: dict[str, Any] = {name: text for name, text in network.as_dict().items() if isinstance(text, str)}
    for name, text in texts.items():
        if not 0 < len(text) <= LONGEST_NAME:
            raise InvalidInputError(f"config.network.{name} is a text of {len(text)} letters, not a name")
    return dataclasses.replace(network, **{name: visible(text) for name, text in texts.items()})
