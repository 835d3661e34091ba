"""What certification costs: certificates against the plain float64 pass, and the one-off bounds of a network."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from onelip.certification import Certifier, lipschitz_bound
from onelip.models import ConvNet


@dataclass(frozen=True)
class CertifyTiming:
    """Seconds for all images, passes and certificates in turns batch by batch, and for the bounds before them."""

    method: str
    images: int
    forward_seconds: float
    certify_seconds: float
    bounds_seconds: float
    lipschitz: float

    @property
    def ratio(self) -> float:
        """Cost of the certificates, without the one-off bounds, relative to the float64 pass."""
        return self.certify_seconds / self.forward_seconds


@dataclass(frozen=True)
class BoundsTiming:
    """Seconds for the proven bounds of all layers; processor seconds tell how busy the machine was meanwhile."""

    method: str
    size: str
    wall_seconds: float
    processor_seconds: float
    lipschitz: float


def time_certify(
    method: str, size: str = "XS", images: int = 1000, batch_size: int = 250, arithmetic: str = "float64"
) -> CertifyTiming:
    """Certify random CIFAR-sized images with a fresh ConvNet, in turns with its float64 forward pass."""
    torch.manual_seed(0)
    model = ConvNet(method, size, 10).eval()
    double = copy.deepcopy(model).double().eval()
    start = time.perf_counter()
    certifier = Certifier(model, arithmetic="float32" if arithmetic == "float32" else "float64")
    bounds = time.perf_counter() - start
    parts = (torch.rand(images, 3, 32, 32) - 0.5).split(batch_size)
    certifier(parts[0])
    _forward(double, parts[0])
    forward, certified = 0.0, 0.0
    for part in parts:
        start = time.perf_counter()
        _forward(double, part)
        middle = time.perf_counter()
        certifier(part)
        forward, certified = forward + middle - start, certified + time.perf_counter() - middle
    return CertifyTiming(method, images, forward, certified, bounds, certifier.lipschitz)


def time_bounds(method: str, size: str = "M") -> BoundsTiming:
    """Prove the bounds of a fresh ConvNet, its parameter transformations included."""
    torch.manual_seed(0)
    model = ConvNet(method, size, 10).eval()
    start, processor = time.perf_counter(), time.process_time()
    lipschitz = lipschitz_bound(model)
    return BoundsTiming(method, size, time.perf_counter() - start, time.process_time() - processor, lipschitz)


@torch.no_grad()
def _forward(model: ConvNet, x: Tensor) -> Tensor:
    # As the certificates: batches of 256 at most.
    return torch.cat([model(part) for part in x.double().split(256)])
