"""What a data set is: uint8 images (N, C, H, W), int64 labels, class names, and constants that belong to it; its parts.

The channel means are constants of the data set, not of the split at hand, so that a model sees the same inputs
whichever part it is trained on. Nothing is divided by a standard deviation: that would multiply the Lipschitz
constant of the pipeline by 1 / min(std), and every certified radius would be wrong by that factor.
"""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from onelip.bench.records.data_sets import DataError as DataError
from onelip.errors import InvalidInputError
from onelip.protocol import DatasetInfo

Progress = Callable[[str, int, int | None], None]
"""Called with (what is done, units done so far, units in total or None if not known)."""

UNREADABLE_IMAGE = (OSError, SyntaxError, ValueError, zlib.error, Image.DecompressionBombError)
"""What Pillow raises for a file that is damaged, or of another format."""

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


def silent(stage: str, done: int, total: int | None) -> None:
    """The progress callback that shows nothing."""


def in_threads(function: Callable[[Any], Any], items: Sequence[Any], stage: str, progress: Progress) -> list[Any]:
    """The results for all items, in order. Pillow decodes outside the interpreter lock, so threads are enough.

    The queue is filled in steps: an error then surfaces at once and not after all other items.
    """
    results: list[Any] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while len(results) < len(items):
            results += pool.map(function, items[len(results) : len(results) + 1000])
            progress(stage, len(results), len(items))
    return results


def open_image(content: bytes, *formats: str) -> Image.Image:
    """An image of one of these formats, not decoded yet; Pillow opens others by calling other programs."""
    try:
        return Image.open(io.BytesIO(content), formats=formats)
    except UnidentifiedImageError as error:  # whose words are those of a programmer
        raise OSError(f"no image of the format {' or '.join(formats)}") from error


def decode_all(
    decode: Callable[[Any], NDArray[np.uint8]], files: Sequence[Any], shape: tuple[int, int, int], progress: Progress
) -> NDArray[np.uint8]:
    """The pixels of all files, (N, C, H, W); `decode` gives those of one."""
    images = np.empty((len(files), *shape), dtype=np.uint8)

    def put(index: int) -> None:
        images[index] = decode(files[index])

    in_threads(put, range(len(files)), "decoding images", progress)
    return images


@dataclass(frozen=True)
class Dataset:
    """Images and labels of the official training and test sets, in the official order."""

    info: DatasetInfo
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]
    note: str = ""
    """How it was obtained, and what is missing if it is not complete."""

    def __post_init__(self) -> None:
        shape, classes = self.info.shape, self.info.num_classes
        for images, labels in ((self.train_images, self.train_labels), (self.test_images, self.test_labels)):
            if images.dtype != torch.uint8 or images.shape[1:] != shape:
                raise InvalidInputError(
                    f"{self.name}: images must be uint8 (N, {', '.join(map(str, shape))}), "
                    f"got {images.dtype} {tuple(images.shape)}"
                )
            if labels.dtype != torch.int64 or labels.shape != images.shape[:1] or not len(labels):
                raise InvalidInputError(f"{self.name}: needs one int64 label per image and at least one image")
            if int(labels.min()) < 0 or int(labels.max()) >= classes:
                raise InvalidInputError(f"{self.name}: labels must lie in 0..{classes - 1}")
        if len(self.class_names) != classes:
            raise InvalidInputError(f"{self.name}: needs {classes} class names, got {len(self.class_names)}")

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.info.name

    def to(self, device: torch.device | str) -> Dataset:
        """The same data set with its tensors on a device."""
        return replace(self, **{name: getattr(self, name).to(device) for name in ARRAYS})


def generator_for(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """A generator on the CPU, whatever the device of the data: every device then sees the same draws."""
    key = "/".join([purpose, str(seed), *map(str, counters)])
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little", signed=True)
    return torch.Generator().manual_seed(number)


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
