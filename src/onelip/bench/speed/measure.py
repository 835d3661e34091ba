"""Measuring one network: its training step, its cached inference and its memory, against the fixed reference."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch

from onelip.bench.measurement import MemoryUse, Rounds, Timing, Workload, predict_memory
from onelip.bench.measurement.memory import GIB, available_memory, fits
from onelip.bench.measurement.throughput import compare_networks, default_rounds
from onelip.bench.measurement.workload import build_network, random_batch
from onelip.bench.speed.contestants import Contestant
from onelip.errors import OnelipError


class TooLargeError(OnelipError):
    """The network and the reference do not fit into the memory of this machine."""


@dataclass(frozen=True)
class Suite:
    """What all networks of one run share: the reference on its workload, device, seed and time limit.

    `seconds` limits the training steps and again the forward passes of each network; the least number of rounds is
    measured in any case.
    """

    workload: Workload
    device: torch.device
    seed: int = 0
    seconds: float = 60.0

    @property
    def rounds(self) -> Rounds:
        """How often to measure."""
        return replace(default_rounds(self.device), seconds=self.seconds)

    @functools.cached_property
    def reference_memory(self) -> MemoryUse:
        """Memory of the reference."""
        return predict_memory(self.workload.reference)


@dataclass(frozen=True)
class SpeedResult:
    """Figures of one network: seconds and ratios of both passes, bytes and their ratio to the reference."""

    contestant: Contestant
    training: Timing
    inference: Timing
    memory: MemoryUse
    memory_ratio: float

    @property
    def ratios(self) -> dict[str, float]:
        """Median ratios to the reference by quantity, as in `targets.QUANTITIES`."""
        return {
            "training": self.training.ratio.median,
            "inference": self.inference.ratio.median,
            "memory": self.memory_ratio,
        }


def measure_contestant(contestant: Contestant, suite: Suite) -> SpeedResult:
    """Count the memory of a network, then time it in turns with the reference."""
    torch.manual_seed(suite.seed)
    memory = contestant.memory()
    _check_fit(memory, suite)
    model = contestant.build().to(suite.device)
    reference = build_network(suite.workload.reference, suite.device)
    batch = random_batch(suite.workload, suite.device)
    training, inference = compare_networks(model, reference, batch, suite.rounds, contestant.for_inference)
    return SpeedResult(contestant, training, inference, memory, memory.training / suite.reference_memory.training)


def _check_fit(memory: MemoryUse, suite: Suite) -> None:
    needed = memory.training + suite.reference_memory.training
    if not fits(needed, available_memory(suite.device)):
        raise TooLargeError(f"needs {needed / GIB:.1f} GiB together with the reference")
