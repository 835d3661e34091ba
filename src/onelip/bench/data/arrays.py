"""Data sets of one's own from arrays, tensors or any indexable data set, kept in the cache under a name of its content.

    data = from_arrays(images, labels, name="flowers")       # data.name is such as arrays:flowers-5f0c61a2b3d4
    train(RunOptions(network=NetworkSpec(method="aol", dataset=data.name), epochs=10), Path("runs"))

The name ends in a hash of all pixels and labels: a run continues on the same data or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelip.bench.data.cache import kept, own_name
from onelip.bench.data.dataset import Dataset, generator_for
from onelip.errors import InvalidInputError
from onelip.protocol import DatasetInfo

Pixels = NDArray[np.uint8]
ChannelAxis = Literal["first", "last"]
TEST_FRACTION = 0.2
"""Share of every class that becomes the test set where none is given."""


def from_arrays(
    images: Any,
    labels: Any,
    test_images: Any = None,
    test_labels: Any = None,
    *,
    name: str = "arrays",
    class_names: Sequence[str] | None = None,
    channels: ChannelAxis | None = None,
    seed: int = 0,
) -> Dataset:
    """A data set of these images, kept in the cache so that runs and studies find it by its name.

    Args:
        images: (N, H, W), (N, H, W, C) or (N, C, H, W), arrays or tensors: uint8, or floats in [0, 1], which are
            rounded to multiples of 1/255.
        labels: N whole numbers 0, 1, ..., K - 1, each of which occurs.
        test_images: test set; without one, a fifth of every class becomes it, chosen by `seed`.
        test_labels: labels of the test images.
        name: becomes part of the data set's name.
        class_names: one for each label; by default the numbers.
        channels: "first" or "last", where the shape does not tell: by default the shorter of the two axes.
        seed: chooses the test images, if none are given.
    """
    if (test_images is None) != (test_labels is None):
        raise InvalidInputError("test_images and test_labels are given together, or neither of them")
    parts = [(to_pixels(images, "images", channels), to_labels(labels, "labels"))]
    if test_images is not None:
        parts.append((to_pixels(test_images, "test_images", channels), to_labels(test_labels, "test_labels")))
    digest = hashlib.sha256()
    for pixels, numbers in parts:
        digest.update(repr(pixels.shape).encode())
        digest.update(np.ascontiguousarray(pixels).data)
        digest.update(numbers.data)
    digest.update(repr((class_names and list(class_names), None if len(parts) == 2 else seed)).encode())
    full_name = own_name("arrays", name, digest.hexdigest())
    return kept(full_name, lambda: assemble(full_name, parts, class_names, "given as arrays", seed))


def from_dataset(dataset: Any, test: Any = None, **options: Any) -> Dataset:
    """The same for anything with a length and items (image, label), such as a `torch.utils.data.Dataset`.

    Images may be tensors, arrays or Pillow images; they are read once. `options` are those of `from_arrays`.
    """
    images, labels = _columns(dataset, "dataset")
    test_images, test_labels = (None, None) if test is None else _columns(test, "test")
    return from_arrays(images, labels, test_images, test_labels, **options)


def _columns(dataset: Any, what: str) -> tuple[Any, Any]:
    images, labels = [], []
    for index in range(len(dataset)):
        try:
            image, label = dataset[index]
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"{what}[{index}] is not a pair of image and label ({error})") from error
        images.append(np.asarray(image))
        labels.append(int(label))
        if images[-1].shape != images[0].shape:
            raise InvalidInputError(
                f"{what}[{index}] has the shape {images[-1].shape}, {what}[0] has {images[0].shape}: all must be alike"
            )
    if not images:
        raise InvalidInputError(f"{what} is empty")
    return np.stack(images), np.array(labels)


def to_pixels(images: Any, what: str, channels: ChannelAxis | None = None) -> Pixels:
    """uint8 (N, C, H, W) of images in any of the accepted forms; `what` names them in messages."""
    array: NDArray[Any] = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4:
        if channels is None and array.shape[1] == array.shape[3]:
            raise InvalidInputError(
                f"{what} has the shape {array.shape}: say which axis the channels are: channels=..."
            )
        last = array.shape[3] < array.shape[1] if channels is None else channels == "last"
        array = array.transpose(0, 3, 1, 2) if last else array
    else:
        raise InvalidInputError(f"{what} has the shape {array.shape}; allowed: N H W, N H W C or N C H W")
    if 0 in array.shape:
        raise InvalidInputError(f"{what} has the shape {array.shape}, in which nothing may be 0")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind != "f":
        raise InvalidInputError(f"{what} has the type {array.dtype}; allowed: uint8, or floats in [0, 1]")
    if not (float(array.min()) >= 0.0 and float(array.max()) <= 1.0):  # false for NaN, too
        raise InvalidInputError(f"{what} has values outside of [0, 1], or that are not numbers; floats lie in [0, 1]")
    return np.rint(array.astype(np.float64) * 255).astype(np.uint8)


def to_labels(labels: Any, what: str) -> NDArray[np.int64]:
    """int64 (N,) of whole numbers that are not negative."""
    array: NDArray[Any] = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise InvalidInputError(f"{what} must be whole numbers, one per image, got {array.dtype} {array.shape}")
    if int(array.min()) < 0 or int(array.max()) >= 2**31:
        raise InvalidInputError(f"{what} must be 0, 1, ..., K - 1, got {array.min()} to {array.max()}")
    return np.ascontiguousarray(array.astype(np.int64))


def assemble(
    name: str,
    parts: Sequence[tuple[Pixels, NDArray[np.int64]]],
    class_names: Sequence[str] | None,
    note: str,
    seed: int,
) -> Dataset:
    """Training set and, as a second part, test set; without one a share of every class is set aside, and said so."""
    for pixels, labels in parts:
        if len(pixels) != len(labels):
            raise InvalidInputError(f"{len(pixels)} images have {len(labels)} labels; each image needs one")
        if pixels.shape[1:] != parts[0][0].shape[1:]:
            raise InvalidInputError(
                f"training images are {parts[0][0].shape[1:]}, test images {pixels.shape[1:]} (channels, height, width)"
            )
    counts = np.unique(parts[0][1])
    classes = int(counts[-1]) + 1
    if len(counts) != classes:
        absent = next(label for label in range(classes) if label not in counts)
        raise InvalidInputError(
            f"no training image has the label {absent}; labels are 0, ..., {classes - 1} without gaps"
        )
    if classes < 2:
        raise InvalidInputError("there is one class only; a classifier needs at least two")
    if int(parts[-1][1].max()) >= classes:
        raise InvalidInputError(f"the test label {parts[-1][1].max()} has no training image")
    names = tuple(str(label) for label in range(classes)) if class_names is None else tuple(class_names)
    if len(parts) == 1:
        parts = _split(*parts[0], names, seed)
        note += f"; no test set given, so a fifth of every class is the test set (seed {seed})"
    (train, train_labels), (test, test_labels) = parts
    _, channels, height, width = train.shape
    mean = tuple(float(value) for value in np.round(train.mean(axis=(0, 2, 3), dtype=np.float64) / 255, 8))
    info = DatasetInfo(
        name, name, classes, height, len(train), len(test), mean, "none", channels, None if width == height else width
    )
    tensors = (torch.from_numpy(array) for array in (train, train_labels, test, test_labels))
    return Dataset(info, *tensors, class_names=names, note=note)


def _split(
    pixels: Pixels, labels: NDArray[np.int64], names: tuple[str, ...], seed: int
) -> list[tuple[Pixels, NDArray[np.int64]]]:
    """The same share of every class, at least one image and not all, in the order that the images had."""
    order = torch.randperm(len(labels), generator=generator_for(seed, "test")).numpy()
    is_test = np.zeros(len(labels), dtype=bool)
    for label, name in enumerate(names):
        members = order[labels[order] == label]
        if len(members) < 2:
            raise InvalidInputError(f"class {name!r} has one image; a split into training and test set needs two")
        is_test[members[: max(1, round(TEST_FRACTION * len(members)))]] = True
    return [(pixels[~is_test], labels[~is_test]), (pixels[is_test], labels[is_test])]
