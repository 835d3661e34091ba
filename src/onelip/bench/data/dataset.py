"""What a data set is: uint8 images (N, C, H, W), int64 labels, class names, and constants that belong to it.

The channel means are constants of the data set, not of the split at hand, so that a model sees the same inputs
whichever part it is trained on. Nothing is divided by a standard deviation: that would multiply the Lipschitz
constant of the pipeline by 1 / min(std), and every certified radius would be wrong by that factor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onelip.errors import InvalidInputError, OnelipError
from onelip.protocol import DatasetInfo

Progress = Callable[[str, int, int | None], None]
"""Called with (what is done, units done so far, units in total or None if not known)."""

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


class DataError(OnelipError):
    """Data that is missing, cannot be fetched or cannot be stored; the message says what to do."""


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
