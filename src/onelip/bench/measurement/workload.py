"""What is measured: one network on one data set's shapes, and its training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onelip.bench.measurement.reference import ReferenceConvNet
from onelip.bench.runs import REFERENCE, NetworkSpec
from onelip.errors import InvalidInputError
from onelip.models import ConvNet
from onelip.protocol import DatasetInfo

_NOISE = 0.02
_LEARNING_RATE = 1e-4  # has no influence on time or memory; small, so that random labels never lead to overflow


@dataclass(frozen=True)
class Workload:
    """A network, a data set and a batch size. `method` is a method's key or "reference".

    The network has one of the paper's sizes (XS if nothing is said) or, with `width`, so many channels after its
    first layer; `size` is then None.
    """

    method: str
    size: str | None = None
    dataset: str = "cifar10"
    batch_size: int = 256
    width: int | None = None

    def __post_init__(self) -> None:
        network = self.network
        _ = replace(network, method=REFERENCE).config  # refuses unknown data sets and widths that no network has
        object.__setattr__(self, "size", network.size)
        if self.batch_size < 1:
            raise InvalidInputError(f"the batch size must be positive, not {self.batch_size}")

    @property
    def data(self) -> DatasetInfo:
        """Facts about the data set; time and memory depend on its image size and number of classes only."""
        return self.network.data

    @property
    def network(self) -> NetworkSpec:
        """The network without the batch size."""
        return NetworkSpec(method=self.method, size=self.size, width=self.width, dataset=self.dataset)

    @property
    def reference(self) -> Workload:
        """The same work for the plain network."""
        return replace(self, method=REFERENCE)

    @property
    def size_name(self) -> str:
        """XS, S, M or L, or w8 for a width of 8."""
        return self.network.size_name


def build_network(workload: Workload, device: torch.device | None = None) -> nn.Module:
    """The network of a workload in training mode."""
    data = workload.data
    if workload.method == REFERENCE:
        model: nn.Module = ReferenceConvNet(
            workload.size or "XS", data.num_classes, data.image_size, width=workload.width
        )
    else:
        model = ConvNet(
            workload.method, workload.size, data.num_classes, input_size=data.image_size, width=workload.width
        )
    return model if device is None else model.to(device)


def random_batch(workload: Workload, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and labels of the shapes that the data set has."""
    data = workload.data
    side = data.image_size
    x = torch.rand(workload.batch_size, 3, side, side, device=device)
    return x, torch.randint(data.num_classes, (workload.batch_size,), device=device)


@torch.no_grad()
def leave_start(network: nn.Module) -> None:
    """Move every weight a little, as the first steps of a training do.

    Close to a start as the identity many numbers are zero or denormal. Processors are up to five times slower with the
    latter, which says nothing about training: there they are gone after a few steps.
    """
    for parameter in network.parameters():
        parameter.add_(_NOISE * torch.randn_like(parameter))


def training_step(model: nn.Module, x: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward pass, backward pass and update by SGD with momentum 0.9, as one call."""
    optimiser = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimiser.step()

    return step
