"""Decoded data sets on the disk: one safetensors file each, checksums of its arrays in its header.

The folder is `ONELIP_DATA`, or `~/.cache/onelip`. A file appears complete or not at all, and its checksums are
compared every time it is read, so a damaged file is never trained on.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from onelip.atomic_files import write_atomically
from onelip.bench.data.dataset import DataError, Dataset
from onelip.protocol import DatasetInfo

FORMAT_VERSION = 1
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


def cache_folder() -> Path:
    """Where data sets are kept."""
    chosen = os.environ.get("ONELIP_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "onelip"


def cache_file(info: DatasetInfo) -> Path:
    """Where this data set is, or would be."""
    return cache_folder() / f"{info.name}.safetensors"


def save(dataset: Dataset) -> Path:
    """Store a data set, replacing an older copy in one step."""
    arrays: dict[str, torch.Tensor] = {name: getattr(dataset, name).contiguous() for name in ARRAYS}
    header = {
        "format_version": FORMAT_VERSION,
        "name": dataset.name,
        "note": dataset.note,
        "class_names": dataset.class_names,
        "sha256": {name: _digest(array) for name, array in arrays.items()},
    }
    path = cache_file(dataset.info)
    write_atomically(path, safetensors.torch.save(arrays, metadata={"onelip": json.dumps(header)}))
    return path


def load_cached(info: DatasetInfo) -> Dataset:
    """Read a stored data set and compare its checksums; `DataError` if it is missing or damaged."""
    path = cache_file(info)
    again = f"`onelip data fetch {info.name}`"
    if not path.is_file():
        raise DataError(f"{info.name} is not in {path.parent}; get it with {again}")
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            header = json.loads(file.metadata()["onelip"])
            if header["format_version"] != FORMAT_VERSION:
                raise DataError(f"{path}: format {header['format_version']}, expected {FORMAT_VERSION}; run {again}")
            arrays = {name: file.get_tensor(name) for name in ARRAYS}
        damaged = [name for name, array in arrays.items() if _digest(array) != header["sha256"][name]]
        if damaged:
            raise DataError(f"{path}: {', '.join(damaged)} damaged, the checksum differs; run {again}")
        return Dataset(info, **arrays, class_names=tuple(header["class_names"]), note=header["note"])
    except DataError:
        raise
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged, or not written by onelip ({error}); run {again}") from error


def read_note(info: DatasetInfo) -> str | None:
    """The note of a stored data set without reading its arrays; None if it is not stored."""
    path = cache_file(info)
    if not path.is_file():
        return None
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            return str(json.loads(file.metadata()["onelip"])["note"])
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        return "damaged"


def _digest(array: torch.Tensor) -> str:
    return hashlib.sha256(array.contiguous().numpy().data).hexdigest()
