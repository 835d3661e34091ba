"""Decoded data sets on the disk: one safetensors file each, checksums of its arrays in its header.

The folder is `ONELIP_DATA`, or `~/.cache/onelip`. A file appears complete or not at all, and its checksums are
compared every time it is read, so a damaged file is never trained on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from onelip.atomic_files import write_atomically
from onelip.bench.data.dataset import ARRAYS, DataError, Dataset
from onelip.local_machine import cache_folder
from onelip.protocol import DatasetInfo

FORMAT_VERSION = 2
_READABLE_VERSIONS = (1, 2)
"""Files of version 1 have no facts about the data set and no checksum of the header."""
_UNREADABLE = (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError)


def stored_at(name: str) -> Path:
    """Where the data set of this name is, or would be."""
    return cache_folder() / f"{name.replace(':', '-')}.safetensors"


def cache_file(info: DatasetInfo) -> Path:
    """Where this data set is, or would be."""
    return stored_at(info.name)


def save(dataset: Dataset) -> Path:
    """Store a data set, replacing an older copy in one step."""
    arrays: dict[str, torch.Tensor] = {name: getattr(dataset, name).contiguous() for name in ARRAYS}
    header = {
        "format_version": FORMAT_VERSION,
        "name": dataset.name,
        "note": dataset.note,
        "info": asdict(dataset.info),
        "class_names": dataset.class_names,
        "sha256": {name: _digest(array) for name, array in arrays.items()},
    }
    header["header_sha256"] = _header_digest(header)
    path = cache_file(dataset.info)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot write in {path.parent} ({error.strerror}); choose a folder with ONELIP_DATA"
        ) from error
    write_atomically(path, safetensors.torch.save(arrays, metadata={"onelip": json.dumps(header)}))
    return path


def load_cached(info: DatasetInfo) -> Dataset:
    """Read a stored data set and compare its checksums; `DataError` if it is missing or damaged."""
    path = cache_file(info)
    again = "`onelip data add PATH`" if ":" in info.name else f"`onelip data fetch {info.name}`"
    if not path.is_file():
        raise DataError(f"{info.name} is not in {path.parent}; get it with {again}")
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            header = _header(file)
            if header["format_version"] not in _READABLE_VERSIONS:
                raise DataError(f"{path}: format {header['format_version']}, expected {FORMAT_VERSION}; run {again}")
            arrays = {name: file.get_tensor(name) for name in ARRAYS}
        damaged = [name for name, array in arrays.items() if _digest(array) != header["sha256"][name]]
        if damaged:
            raise DataError(f"{path}: {', '.join(damaged)} damaged, the checksum differs; run {again}")
        return Dataset(info, **arrays, class_names=tuple(header["class_names"]), note=header["note"])
    except DataError:
        raise
    except _UNREADABLE as error:
        raise DataError(f"{path}: damaged, or not written by onelip ({error}); run {again}") from error


def cached_info(path: Path) -> DatasetInfo | None:
    """The facts in the header of a stored data set; None if there are none that can be read."""
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            values = _header(file)["info"]
        values["mean"] = tuple(float(value) for value in values["mean"])
        info = DatasetInfo(**values)
        counts = (info.num_classes, info.image_size, info.channels, info.train_size, info.test_size)
        good = all(type(count) is int and count > 0 for count in counts) and len(info.mean) == info.channels
        return info if good and isinstance(info.name, str) else None
    except _UNREADABLE:
        return None


def read_note(info: DatasetInfo) -> str | None:
    """The note of a stored data set without reading its arrays; None if it is not stored."""
    if not cache_file(info).is_file():
        return None
    try:
        with safetensors.safe_open(cache_file(info), framework="pt", device="cpu") as file:
            return str(_header(file)["note"])
    except _UNREADABLE:
        return "damaged"


def _header(file: Any) -> dict[str, Any]:
    """The header of an open file; ValueError if it is not as it was written."""
    header: dict[str, Any] = json.loads(file.metadata()["onelip"])
    if header["format_version"] == FORMAT_VERSION and header["header_sha256"] != _header_digest(header):
        raise ValueError("the checksum of the header differs")
    return header


def _header_digest(header: dict[str, Any]) -> str:
    content = {name: value for name, value in header.items() if name != "header_sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _digest(array: torch.Tensor) -> str:
    return hashlib.sha256(array.contiguous().numpy().data).hexdigest()
