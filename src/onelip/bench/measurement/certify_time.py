"""What certification costs: certificates against the plain float64 pass, and the bounds proven once per network."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from onelip.bench.measurement.throughput import Rounds, Timing, compare, device_clock
from onelip.certification import Certifier

Arithmetic = Literal["float64", "float32"]
"""Which program the certificates speak of."""


@dataclass(frozen=True)
class CertifyTime:
    """Time of the certificates of a batch, in turns with the float64 pass, and of the bounds before them.

    Processor seconds tell how busy the machine was meanwhile. `lipschitz` is the proven constant of the network.
    """

    certificates: Timing
    bounds_seconds: float
    bounds_processor_seconds: float
    lipschitz: float


def measure_certify(model: nn.Module, x: Tensor, rounds: Rounds, arithmetic: Arithmetic) -> CertifyTime:
    """Prove the bounds of a network, then certify the images as often as `rounds` say."""
    double = copy.deepcopy(model).double().eval()
    images = x - 0.5
    clock = device_clock(x.device)
    clock.synchronise()
    start, processor = clock.now(), time.process_time()
    certifier = Certifier(model.eval(), tuple(x.shape[1:]), arithmetic=arithmetic)
    clock.synchronise()
    bounds, processor = clock.now() - start, time.process_time() - processor

    @torch.no_grad()
    def forward() -> None:
        for part in images.double().split(256):  # as the certificates
            double(part)

    return CertifyTime(
        compare(lambda: certifier(images), forward, clock, rounds), bounds, processor, certifier.lipschitz
    )
