"""One measurement, its record, and how it is taken.

The identity of a measurement holds what its figure depends on: the network, the batch, the code that was measured (a
hash of its source and of the versions below it), and, where it ran on a device, the hardware. So a rerun continues
where it was interrupted, and a change of code or machine starts new records instead of showing old figures.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from onelip.bench.measurement import certify_time, macs, memory, networks, throughput
from onelip.bench.measurement.certify_time import Arithmetic, measure_certify
from onelip.bench.measurement.macs import count_network
from onelip.bench.measurement.memory import available_memory, fits, measure_memory, smallest_card, without_memory
from onelip.bench.measurement.networks import build_network, check_network, random_batch, reference_of
from onelip.bench.measurement.peers import PEERS, peer_versions
from onelip.bench.measurement.sources import source_hash
from onelip.bench.measurement.throughput import Rounds, default_rounds, measure_throughput
from onelip.bench.records import GENERATION, NetworkSpec, RunRecord, RunStatus, is_run, read_record, start_run
from onelip.bench.records.machine import device_name
from onelip.errors import InvalidInputError, one_line
from onelip.factories import factory_source, is_factory_name
from onelip.layers import get_method
from onelip.linalg.devices import Forms, pretend_device
from onelip.protocol import REFERENCE

Quantity = Literal["time", "memory", "macs", "certify"]

PREDICTED = "meta"
"""Device of what is known without running a network: tensors without data, computed with as on a CPU."""

PREDICTED_ON_GPU = "meta:gpu"
"""The same as on a GPU, which takes other forms of the layers (`onelip.linalg.devices`)."""

_MEASURING = {"time": throughput, "memory": memory, "macs": macs, "certify": certify_time}

_SEED = 0


@dataclass(frozen=True)
class Measurement:
    """One quantity of one network on a device; on `PREDICTED` memory is predicted and operations are counted.

    `rounds` replace the usual ones of times; `arithmetic` is that of certificates. `fingerprint` is that of the code,
    where it is known: a plan has computed it for its jobs.
    """

    quantity: Quantity
    network: NetworkSpec
    batch_size: int = 256
    device: str = "cpu"
    rounds: Rounds | None = None
    arithmetic: Arithmetic = "float64"
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        if self.quantity == "macs":
            object.__setattr__(self, "device", PREDICTED)
        elif self.is_prediction and self.quantity != "memory":
            raise InvalidInputError(f"{self.quantity} is measured on a device, not predicted")
        if self.batch_size < 1:
            raise InvalidInputError(f"the batch size must be positive, not {self.batch_size}")
        check_network(self.network)

    @property
    def is_prediction(self) -> bool:
        """Whether no device is needed."""
        return self.device in (PREDICTED, PREDICTED_ON_GPU)

    @property
    def code(self) -> str:
        """The fingerprint of the code that is measured."""
        return self.fingerprint or fingerprint(self.quantity, self.network.method, self.network.model)

    def config(self) -> dict[str, Any]:
        """What identifies the measurement, as plain values."""
        config = {
            "quantity": self.quantity,
            "network": self.network.as_dict(),
            "batch_size": self.batch_size,
            "device": self.device,
            # what times and memory depend on; predictions do not
            "hardware": None if self.is_prediction else device_name(self.device),
            "fingerprint": self.code,
        }
        if self.rounds is not None:
            config["rounds"] = asdict(self.rounds)
        return config | ({"arithmetic": self.arithmetic} if self.quantity == "certify" else {})


@dataclass(frozen=True)
class Outcome:
    """Result of a measurement: metrics, or why there are none; `is_new` is false if it was read from a record.

    A network that does not fit has the metrics {"fits": False, "needed_bytes", "available_bytes"}.
    """

    measurement: Measurement
    metrics: dict[str, Any]
    failure: str | None
    is_new: bool
    folder: Path

    @property
    def fits(self) -> bool:
        """Whether there are figures."""
        return self.failure is None and bool(self.metrics.get("fits"))

    def as_dict(self) -> dict[str, Any]:
        """Plain values: the identity, the figures or the reason why there are none, and the name of the record."""
        result = {"metrics": self.metrics, "failure": self.failure, "record": self.folder.name}
        return self.measurement.config() | result


@functools.cache
def fingerprint(quantity: Quantity, method: str, model: str = "convnet") -> str:
    """Hash of the source that the network and the measurement run, and of the versions of what is below it."""
    modules = {_MEASURING[quantity].__name__, networks.__name__}
    versions = {"torch": str(torch.__version__)}
    if method in PEERS:
        versions |= peer_versions(method)
    elif is_factory_name(model):
        # The module itself, not what it imports. Nothing is run: who lists the jobs of a study need not trust it.
        versions[model] = hashlib.sha256(factory_source(model)).hexdigest()
    elif method != REFERENCE:
        info = get_method(method)
        modules |= {info.conv.__module__, info.linear_layer.__module__}
    return hashlib.sha256(f"{source_hash(modules)} {sorted(versions.items())}".encode()).hexdigest()[:12]


def run_measurement(
    measurement: Measurement, runs_dir: Path, *, again: bool = False, job: str | None = None
) -> Outcome:
    """Measure, or read the record unless `again`; an error is an outcome too, so that other measurements go on.

    `job` is the name of the study's job that this is, for the record.
    """
    config = measurement.config()
    with start_run(runs_dir, "measure", config, job=job, device=config["hardware"]) as run:
        if run.record.status is RunStatus.FINISHED and not again and _still_holds(measurement, run.record.metrics):
            return Outcome(measurement, run.record.metrics, None, False, run.folder)
        start = time.monotonic()
        try:
            metrics = measure(measurement)
        except Exception as error:  # named in the record and in the table
            reason = one_line(error)
            run.update(status=RunStatus.FAILED, reason=reason, seconds=time.monotonic() - start)
            return Outcome(measurement, {}, reason, True, run.folder)
        if (generation := _generation(run.record, runs_dir)) > 0:
            metrics[GENERATION] = generation
        run.update(status=RunStatus.FINISHED, metrics=metrics, seconds=time.monotonic() - start)
        return Outcome(measurement, run.record.metrics, None, True, run.folder)


def _generation(own: RunRecord, runs_dir: Path) -> int:
    """One more than the highest among records of the same figure by other code, thresholds or rounds; 0 without any."""

    def figure(record: RunRecord) -> dict[str, Any]:
        return {
            name: value for name, value in record.config.items() if name not in ("fingerprint", "thresholds", "rounds")
        }

    found = [-1]
    for folder in runs_dir.glob(f"{own.name.rpartition('-')[0]}-*"):
        with contextlib.suppress(InvalidInputError):
            other = read_record(folder) if is_run(folder) else own
            generation = other.metrics.get(GENERATION, 0)
            if other.name != own.name and figure(other) == figure(own) and type(generation) is int:
                found.append(generation)
    return max(found) + 1


def _still_holds(measurement: Measurement, metrics: dict[str, Any]) -> bool:
    """A network that was too large is tried again if more memory is free."""
    if metrics.get("fits"):
        return True
    return not fits(metrics["needed_bytes"], available_memory(torch.device(measurement.device)))


def measure(measurement: Measurement) -> dict[str, Any]:
    """The metrics, without a record."""
    forms: Forms = "cpu" if measurement.device in ("cpu", PREDICTED) else "accelerator"
    if measurement.is_prediction:
        with pretend_device(forms), without_memory():
            return _measure(measurement, torch.device("meta"))
    device = torch.device(measurement.device)
    needed = _predicted_training(measurement.network, measurement.batch_size, forms)
    if measurement.quantity == "time":
        needed += _predicted_training(reference_of(measurement.network), measurement.batch_size, forms)
    available = available_memory(device)
    too_large = {"fits": False, "needed_bytes": needed, "available_bytes": available}
    if not fits(needed, available):
        return too_large
    try:
        return _measure(measurement, device)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return too_large


def _measure(measurement: Measurement, device: torch.device) -> dict[str, Any]:
    torch.manual_seed(_SEED)
    network = measurement.network
    rounds = measurement.rounds or default_rounds(device)
    model = build_network(network, device)
    x, labels = random_batch(network, measurement.batch_size, device)
    match measurement.quantity:
        case "memory":
            use = measure_memory(model, x, labels)
            return {"fits": True, **asdict(use), "smallest_card_gib": smallest_card(use.training)}
        case "macs":
            figures = count_network(model, x, labels)
        case "certify":
            figures = measure_certify(model, x, rounds, measurement.arithmetic)
        case "time":
            reference = build_network(reference_of(network), device)
            figures = measure_throughput(model, reference, x, labels, rounds, network.data.train_size)
    return {"fits": True, **asdict(figures)}


@functools.lru_cache(maxsize=64)
def _predicted_training(network: NetworkSpec, batch_size: int, forms: Forms) -> int:
    """Peak bytes of training in the forms of CPUs or of accelerators.

    Layers of other packages look at values; the plain network stands for them.
    """
    known = replace(network, method="standard") if network.method in PEERS else network
    device = PREDICTED if forms == "cpu" else PREDICTED_ON_GPU
    return measure(Measurement("memory", known, batch_size, device))["training"]
