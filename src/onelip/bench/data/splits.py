"""Training, validation and test parts of a data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from onelip.bench.data.dataset import Dataset
from onelip.bench.data.seeds import generator_for
from onelip.errors import InvalidInputError


@dataclass(frozen=True)
class DataSplit:
    """uint8 images and int64 labels on one device, and the channel means to subtract from them."""

    images: Tensor
    labels: Tensor
    mean: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.labels)


class Splits(NamedTuple):
    """The three parts."""

    train: DataSplit
    validation: DataSplit
    test: DataSplit


def make_splits(dataset: Dataset, validation_fraction: float = 0.1, seed: int = 0) -> Splits:
    """Set aside a random part of the training set for validation; the test set is the official one.

    The same share of every class is set aside, rounded to whole images, so that the validation accuracy does not
    vary with the class counts. The choice depends on the seed alone, not on the device. A fraction of 0 keeps
    all images for training and makes an empty validation part.
    """
    if not 0.0 <= validation_fraction < 1.0:
        raise InvalidInputError(f"validation_fraction must be in [0, 1), got {validation_fraction}")
    labels = dataset.train_labels.cpu()
    shuffled = torch.randperm(len(labels), generator=generator_for(seed, "validation"))
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    counts = torch.bincount(labels, minlength=dataset.info.num_classes)
    place_in_class = torch.arange(len(labels)) - (counts.cumsum(0) - counts)[labels[by_class]]
    is_validation = place_in_class < torch.round(counts * validation_fraction)[labels[by_class]]

    def part(indices: Tensor) -> DataSplit:
        chosen = indices.sort().values.to(dataset.train_labels.device)
        return DataSplit(dataset.train_images[chosen], dataset.train_labels[chosen], dataset.info.mean)

    test = DataSplit(dataset.test_images, dataset.test_labels, dataset.info.mean)
    return Splits(part(by_class[~is_validation]), part(by_class[is_validation]), test)
