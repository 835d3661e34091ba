"""The data sets that exist, where each comes from, and how to read it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from onelip.bench.data.cache import cache_file, load_cached
from onelip.bench.data.cifar import CIFAR10, CIFAR100, read_cifar
from onelip.bench.data.dataset import Dataset, Progress
from onelip.bench.data.download import RemoteFile
from onelip.bench.data.mini import MINI, read_mini
from onelip.bench.data.tiny_imagenet import TINY_IMAGENET, ZIP_MD5, read_tiny_imagenet
from onelip.bench.records.data_sets import dataset_info, is_own, unknown_dataset
from onelip.protocol import DatasetInfo


@dataclass(frozen=True)
class CatalogueEntry:
    """A data set with its sources, in the order in which they are tried, and one reader for all of them."""

    info: DatasetInfo
    sources: tuple[RemoteFile, ...] = ()
    read: Callable[[Path, Progress], Dataset] | None = None
    """None for the embedded data set, which is not fetched."""


def _official_cifar(file: str, md5: str, size: int) -> RemoteFile:
    return RemoteFile(f"https://www.cs.toronto.edu/~kriz/{file}", md5, size)


_ENTRIES = {
    entry.info.name: entry
    for entry in (
        CatalogueEntry(
            CIFAR10.info,
            (_official_cifar("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),),
            lambda path, progress: read_cifar(path, CIFAR10, progress),
        ),
        CatalogueEntry(
            CIFAR100.info,
            (_official_cifar("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),),
            lambda path, progress: read_cifar(path, CIFAR100, progress),
        ),
        CatalogueEntry(
            TINY_IMAGENET,
            (RemoteFile("http://cs231n.stanford.edu/tiny-imagenet-200.zip", ZIP_MD5, 248_100_043),),
            read_tiny_imagenet,
        ),
        CatalogueEntry(MINI),
    )
}


def list_datasets() -> list[str]:
    """The names of all data sets."""
    return list(_ENTRIES)


def get_entry(name: str) -> CatalogueEntry:
    """Everything about a data set, sources included."""
    if name not in _ENTRIES:
        raise unknown_dataset(name, _ENTRIES)
    return _ENTRIES[name]


def is_embedded(name: str) -> bool:
    """Whether a data set comes with the package."""
    return not is_own(name) and get_entry(name).read is None


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
