"""The data sets that exist, where each comes from, and how to read it.

`cifar10-mini` comes with the extra `bench`: of each class of CIFAR-10, the first 400 images of the official training
set and the first 100 of the official test set. Each class is one lossless WebP, 32 pixels wide, its 500 images below
each other, training images first (8.2 MB in all; PNG would need 11.6 MB), in a distribution of its own,
packages/cifar10-mini, which the library is smaller without. Image number i of every class comes before image number
i + 1 of any, so that every prefix is balanced.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from onelip.bench.data.cache import cache_file, load_cached
from onelip.bench.data.cifar import CIFAR10, CIFAR10_CLASSES, CIFAR100, read_cifar
from onelip.bench.data.dataset import UNREADABLE_IMAGE, DataError, Dataset, Progress
from onelip.bench.data.tiny_imagenet import TINY_IMAGENET, ZIP_MD5, read_tiny_imagenet
from onelip.bench.records.data_sets import dataset_info, unknown_dataset
from onelip.errors import InvalidInputError
from onelip.protocol import DATA_SETS, DatasetInfo

MINI = DATA_SETS["cifar10-mini"]
_TRAIN_PER_CLASS, _TEST_PER_CLASS = 400, 100
IMAGES_SHA256 = "72e29263643a834701a1f232c18577ba4a0526b1376895a64dc3a3bbbee60f1a"
"""Of the (10, 500, 32, 32, 3) pixel bytes of cifar10-mini: classes in order, training images before test images."""


@dataclass(frozen=True)
class RemoteFile:
    """A file that everybody gets the same: where it is and what it must be."""

    url: str
    md5: str
    size: int

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class CatalogueEntry:
    """A data set with its official source, and a reader of this and of other files that hold it."""

    info: DatasetInfo
    source: RemoteFile
    read: Callable[[Path, Progress], Dataset]


_KRIZ = "https://www.cs.toronto.edu/~kriz"

_ENTRIES = {
    entry.info.name: entry
    for entry in (
        CatalogueEntry(
            CIFAR10.info,
            RemoteFile(f"{_KRIZ}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),
            lambda path, progress: read_cifar(path, CIFAR10, progress),
        ),
        CatalogueEntry(
            CIFAR100.info,
            RemoteFile(f"{_KRIZ}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
            lambda path, progress: read_cifar(path, CIFAR100, progress),
        ),
        CatalogueEntry(
            TINY_IMAGENET,
            RemoteFile("http://cs231n.stanford.edu/tiny-imagenet-200.zip", ZIP_MD5, 248_100_043),
            read_tiny_imagenet,
        ),
    )
}


def list_datasets() -> list[str]:
    """The names of all data sets."""
    return [*_ENTRIES, MINI.name]


def is_embedded(name: str) -> bool:
    """Whether a data set comes with the package."""
    return name == MINI.name


def get_entry(name: str) -> CatalogueEntry:
    """Where a data set comes from; an error for one that comes with the package."""
    if is_embedded(name):
        raise InvalidInputError(f"{name} comes with the package; there is nothing to fetch")
    if name not in _ENTRIES:
        raise unknown_dataset(name, list_datasets())
    return _ENTRIES[name]


def load(name: str, device: torch.device | str = "cpu") -> Dataset:
    """Read a data set from the package or the cache, verify it, and put it on a device. Never downloads.

    >>> load("cifar10-mini").train_images.shape
    torch.Size([4000, 3, 32, 32])
    """
    info = dataset_info(name)
    version = None  # the embedded images never change
    if not is_embedded(name):
        file = cache_file(info)
        try:
            state = file.stat()
        except OSError:
            return load_cached(info).to(device)  # which says what is missing, and is not remembered
        version = (file, state.st_ino, state.st_mtime_ns, state.st_size)
    # A study trains, certifies and diagnoses in one process: the data are decoded and verified once, and again only if
    # the file has changed.
    return _read(info, version, torch.device(device))


@functools.lru_cache(maxsize=2)
def _read(info: DatasetInfo, version: object, device: torch.device) -> Dataset:
    dataset = read_mini() if info is MINI else load_cached(info)
    return dataset.to(device)


def read_mini() -> Dataset:
    """Decode the images of cifar10-mini (0.2 s) and check them against their checksum."""
    pixels = np.stack([_class_pixels(name) for name in CIFAR10_CLASSES])
    if hashlib.sha256(pixels.data).hexdigest() != IMAGES_SHA256:
        raise DataError("the embedded cifar10-mini is damaged; reinstall onelip")
    train, test = pixels[:, :_TRAIN_PER_CLASS], pixels[:, _TRAIN_PER_CLASS:]
    tensors = (*_interleave(train), *_interleave(test))
    return Dataset(MINI, *tensors, class_names=CIFAR10_CLASSES, note="embedded in the package")


def _class_pixels(name: str) -> NDArray[np.uint8]:
    try:
        file = resources.files("onelip_cifar10_mini") / f"{name}.webp"
        with file.open("rb") as stream, Image.open(stream) as image:
            pixels = np.asarray(image.convert("RGB"))
    except ModuleNotFoundError:
        raise DataError("the images of cifar10-mini are not installed; in a clone: pip install '.[bench]'") from None
    except UNREADABLE_IMAGE as error:
        raise DataError(f"cannot read the embedded {name}.webp ({error}); reinstall onelip and pillow") from error
    if pixels.shape != ((_TRAIN_PER_CLASS + _TEST_PER_CLASS) * 32, 32, 3):
        raise DataError(f"the embedded {name}.webp has the wrong size {pixels.shape}; reinstall onelip")
    return pixels.reshape(-1, 32, 32, 3)


def _interleave(pixels_knhwc: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
    classes, count = pixels_knhwc.shape[:2]
    images = np.ascontiguousarray(pixels_knhwc.transpose(1, 0, 4, 2, 3)).reshape(-1, 3, 32, 32)
    return torch.from_numpy(images), torch.arange(classes).repeat(count)
