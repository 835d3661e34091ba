"""The protocol of the comparison paper: radii, sizes, widths and data sets, each written here and nowhere else.

So are the sizes of onelip's other networks, which records name without building them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

RADIUS_NUMERATORS: tuple[int, ...] = (36, 72, 108, 255)
"""Radii in units of 1/255, which name the metrics of records: `test_certified_accuracy_36` and so on."""

RADII = tuple(numerator / 255 for numerator in RADIUS_NUMERATORS)
"""Radii at which certified accuracy is reported, in the Euclidean norm of images with values in [0, 1]."""

WIDTHS = {"XS": 16, "S": 32, "M": 64, "L": 128}
"""Channels after the first layer for images up to 32 x 32; each doubling of the side beyond halves them."""

SIZES = tuple(WIDTHS)


@dataclass(frozen=True)
class NetworkInfo:
    """What is known of a network without building it."""

    method: str
    """The method it is made for."""
    widths: Mapping[str, int]
    """Width by size."""
    usual_size: str = "XS"
    """The size that is trained where none is given."""


_DOUBLED = {"XS": 64, "S": 128, "M": 256, "L": 512}

NETWORK_FACTS = {
    "fastnet": NetworkInfo("stiefel", {"XS": 48, "S": 64, "M": 96, "L": 128}, usual_size="S"),
    "liresnet": NetworkInfo("spectral", _DOUBLED),
    "bronet": NetworkInfo("bro", _DOUBLED),
    "lipnext": NetworkInfo("stiefel", _DOUBLED),
}
"""The networks of `onelip.models.NETWORKS`."""

REFERENCE = "reference"
"""In the place of a method: the plain network that all costs are compared with."""

AugmentationName = Literal["none", "flip", "shift-flip", "crop-flip", "randaugment"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without reading it: enough to build a model for it."""

    name: str
    title: str
    num_classes: int
    image_size: int
    train_size: int
    test_size: int
    mean: tuple[float, ...]
    """Mean of each colour channel over the training set, on the scale [0, 1]."""
    augmentation: AugmentationName
    """The augmentation that the paper trains with on this data set."""
    channels: int = 3
    image_width: int | None = None
    """Where it is not `image_size`, the height."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self.channels, self.image_size, self.image_width or self.image_size


_CIFAR10_MEAN = (0.49139968, 0.48215841, 0.44653091)

DATA_SETS = {
    info.name: info
    for info in (
        DatasetInfo("cifar10", "CIFAR-10", 10, 32, 50_000, 10_000, _CIFAR10_MEAN, "crop-flip"),
        DatasetInfo(
            "cifar100", "CIFAR-100", 100, 32, 50_000, 10_000, (0.50707516, 0.48654887, 0.44091784), "crop-flip"
        ),
        DatasetInfo(
            "tiny-imagenet", "Tiny ImageNet", 200, 64, 100_000, 10_000, (0.4802, 0.4481, 0.3975), "randaugment"
        ),
        DatasetInfo("cifar10-mini", "CIFAR-10, embedded part", 10, 32, 4_000, 1_000, _CIFAR10_MEAN, "crop-flip"),
    )
}
"""The data sets of the paper, and the part of CIFAR-10 that comes with the benchmark."""

NOT_GIVEN = "not given"
"""In the place of a cost."""


@dataclass(frozen=True, kw_only=True)
class Complexity:
    """Leading costs of one layer in the notation of the comparison paper.

    Each cost is an expression in b (batch), s (image side), c (channels), k (kernel side) and t (inner
    iterations), in Python syntax; `operations` names what is computed.
    """

    input_operations: str = NOT_GIVEN
    input_macs: str = NOT_GIVEN
    input_memory: str = NOT_GIVEN
    parameter_operations: str = NOT_GIVEN
    parameter_macs: str = NOT_GIVEN
    parameter_memory: str = NOT_GIVEN
