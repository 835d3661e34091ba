"""Decoded data sets on the disk: one safetensors file each, checksums of its arrays in its header.

The folder is `ONELIP_DATA`, or `~/.cache/onelip`. A file appears complete or not at all, and its checksums are
compared every time it is read, so a damaged file is never trained on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from onelip.atomic_files import write_atomically
from onelip.bench.data.dataset import ARRAYS, DataError, Dataset
from onelip.bench.records.data_sets import (
    FORMAT_VERSION,
    UNREADABLE,
    cached_info,
    dataset_info,
    header_digest,
    is_own,
    stored_at,
    stored_header,
)
from onelip.errors import OnelipError
from onelip.local_machine import cache_folder
from onelip.protocol import DatasetInfo

_READABLE_VERSIONS = (1, FORMAT_VERSION)


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
    header["header_sha256"] = header_digest(header)
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
            header = stored_header(file)
            if header["format_version"] not in _READABLE_VERSIONS:
                raise DataError(f"{path}: format {header['format_version']}, expected {FORMAT_VERSION}; run {again}")
            arrays = {name: file.get_tensor(name) for name in ARRAYS}
        damaged = [name for name, array in arrays.items() if _digest(array) != header["sha256"][name]]
        if damaged:
            raise DataError(f"{path}: {', '.join(damaged)} damaged, the checksum differs; run {again}")
        return Dataset(info, **arrays, class_names=tuple(header["class_names"]), note=header["note"])
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{path}: damaged, or not written by onelip ({error}); run {again}") from error


def read_note(info: DatasetInfo) -> str | None:
    """The note of a stored data set without reading its arrays; None if it is not stored."""
    if not cache_file(info).is_file():
        return None
    try:
        with safetensors.safe_open(cache_file(info), framework="pt", device="cpu") as file:
            return str(stored_header(file)["note"])
    except UNREADABLE:
        return "damaged"


def _digest(array: torch.Tensor) -> str:
    return hashlib.sha256(array.contiguous().numpy().data).hexdigest()


def own_name(kind: str, word: str, digest: str) -> str:
    """The name of a data set of one's own with this SHA-256 of its content."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", word).strip("-.")[:40] or "data"
    return f"{kind}:{plain}-{digest[:12]}"


def kept(name: str, make: Callable[[], Dataset]) -> Dataset:
    """The data set of this name in the cache; if it is not there, or damaged, it is made and stored."""
    try:
        return load_cached(dataset_info(name))
    except OnelipError:
        dataset = make()
    save(dataset)
    return dataset


def list_own() -> list[str]:
    """The names of one's own data sets in the cache."""
    files = sorted(file for file in cache_folder().glob("*.safetensors") if file.is_file())
    infos: list[Any] = [cached_info(file) for file in files]
    return [info.name for info in infos if info is not None and is_own(info.name)]
