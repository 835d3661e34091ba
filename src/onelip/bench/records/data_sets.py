"""What is known of data sets without reading them: those of the paper, and one's own from the headers of the cache.

`folder:flowers-5f0c61a2b3d4` is one's own: kind, a word from the folder's name, and a hash of the content. Records hold
this name, never a path: the same name is the same data, wherever they lie.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import safetensors

from onelip.errors import InvalidInputError, OnelipError, did_you_mean
from onelip.local_machine import cache_folder
from onelip.protocol import DATA_SETS, DatasetInfo

FORMAT_VERSION = 2
"""Of the files of the cache; those of version 1 have no facts about the data set and no checksum of the header."""

UNREADABLE = (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError)
"""What reading a file of the cache raises if it is damaged or of somebody else."""

_NAME = re.compile(r"(folder|npz|arrays):[A-Za-z0-9._-]{1,40}-[0-9a-f]{12}")


class DataError(OnelipError):
    """Data that is missing, cannot be fetched or cannot be stored; the message says what to do."""


def dataset_info(name: str) -> DatasetInfo:
    """The facts about a data set: image size, classes, means, ..."""
    if (known := DATA_SETS.get(name)) is not None:
        return known
    if not is_own(name):
        raise unknown_dataset(name, DATA_SETS)
    found = cached_info(stored_at(name))
    if found is None or found.name != name:
        raise DataError(
            f"{name} is not in {cache_folder()}; `onelip data add PATH` reads it from the folder or file it was made of"
        )
    return found


def unknown_dataset(name: str, known: Iterable[str]) -> InvalidInputError:
    """The error for a name that no data set has."""
    return InvalidInputError(
        f"unknown data set {name!r}; known: {', '.join(known)}; --dataset also takes paths of image folders and "
        f".npz files, which read_folder and read_npz read in Python{did_you_mean(name, known)}"
    )


def is_own(name: str) -> bool:
    """Whether a name is one of a data set of one's own."""
    return _NAME.fullmatch(name) is not None


def stored_at(name: str) -> Path:
    """Where the data set of this name is in the cache, or would be."""
    return cache_folder() / f"{name.replace(':', '-')}.safetensors"


def cached_info(path: Path) -> DatasetInfo | None:
    """The facts in the header of a stored data set; None if there are none that can be read."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            values = stored_header(file)["info"]
        values["mean"] = tuple(float(value) for value in values["mean"])
        info = DatasetInfo(**values)
        counts = (info.num_classes, info.image_size, info.channels, info.train_size, info.test_size)
        good = all(type(count) is int and count > 0 for count in counts) and len(info.mean) == info.channels
        return info if good and isinstance(info.name, str) else None
    except UNREADABLE:
        return None


def stored_header(file: Any) -> dict[str, Any]:
    """The header of an open file of the cache; ValueError if it is not as it was written."""
    header: dict[str, Any] = json.loads(file.metadata()["onelip"])
    if header["format_version"] == FORMAT_VERSION and header["header_sha256"] != header_digest(header):
        raise ValueError("the checksum of the header differs")
    return header


def header_digest(header: dict[str, Any]) -> str:
    """Checksum of a header, without the checksum in it."""
    content = {name: value for name, value in header.items() if name != "header_sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
