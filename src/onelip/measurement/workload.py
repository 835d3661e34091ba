"""What is measured: one network on one data set's shapes, and its training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.measurement.reference import WIDTHS, ReferenceConvNet

REFERENCE = "reference"
"""Name of the fixed plain network in the place of a method."""

SIZES = tuple(WIDTHS)

_LEARNING_RATE = 1e-4  # has no influence on time or memory; small, so that random labels never lead to overflow


@dataclass(frozen=True)
class DatasetShape:
    """What time and memory depend on: image side, classes, and the number of images per epoch."""

    input_size: int
    num_classes: int
    train_images: int


DATASETS = {
    "cifar10": DatasetShape(32, 10, 50_000),
    "cifar100": DatasetShape(32, 100, 50_000),
    "tiny-imagenet": DatasetShape(64, 200, 100_000),
}


@dataclass(frozen=True)
class Workload:
    """A network, a data set and a batch size. `method` is a method's key or "reference"."""

    method: str
    size: str = "XS"
    dataset: str = "cifar10"
    batch_size: int = 256

    def __post_init__(self) -> None:
        _check("size", self.size, SIZES)
        _check("data set", self.dataset, tuple(DATASETS))
        if self.batch_size < 1:
            raise InvalidInputError(f"the batch size must be positive, not {self.batch_size}")

    @property
    def shape(self) -> DatasetShape:
        """Shapes of the data set."""
        return DATASETS[self.dataset]

    @property
    def reference(self) -> Workload:
        """The same work for the plain network."""
        return Workload(REFERENCE, self.size, self.dataset, self.batch_size)


def _check(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise InvalidInputError(f"there is no {what} {name!r}, use one of {', '.join(known)}")


def build_network(workload: Workload, device: torch.device | None = None) -> nn.Module:
    """The network of a workload in training mode."""
    shape = workload.shape
    if workload.method == REFERENCE:
        model: nn.Module = ReferenceConvNet(workload.size, shape.num_classes, shape.input_size)
    else:
        from onelip.models import ConvNet

        model = ConvNet(workload.method, workload.size, shape.num_classes, input_size=shape.input_size)
    return model if device is None else model.to(device)


def random_batch(workload: Workload, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and labels of the shapes that the data set has."""
    shape = workload.shape
    side = shape.input_size
    x = torch.rand(workload.batch_size, 3, side, side, device=device)
    return x, torch.randint(shape.num_classes, (workload.batch_size,), device=device)


def training_step(model: nn.Module, x: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward pass, backward pass and update by SGD with momentum 0.9, as one call."""
    optimiser = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimiser.step()

    return step
