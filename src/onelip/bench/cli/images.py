"""Test images of a data set in batches that fit a network, for the commands that look at a trained one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onelip.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor

    from onelip.models import ConvNet


def first_test_images(model: ConvNet, dataset: str, samples: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The first test images, as the network takes them: pixels in [0, 1] minus the channel means."""
    from onelip.bench.data import get_dataset, load, normalise

    info = get_dataset(dataset)
    shape, classes = info.shape, model.config.num_classes
    if model.input_shape != shape or classes != info.num_classes:
        raise InvalidInputError(
            f"the network takes {model.input_shape} and has {classes} classes, {dataset} has {shape} and "
            f"{info.num_classes}: choose another --dataset"
        )
    if samples < 1 or batch_size < 1:
        raise InvalidInputError(f"samples={samples} and batch_size={batch_size} must be at least 1")
    data = load(dataset)
    images, labels = data.test_images[:samples], data.test_labels[:samples]
    for part, part_labels in zip(images.split(batch_size), labels.split(batch_size), strict=True):
        yield normalise(part, info.mean), part_labels
