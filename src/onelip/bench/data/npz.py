"""Data sets from one NumPy archive: images and labels, and optionally test images and labels.

Arrays are read without pickle, and what a header claims is compared with what is there before memory is taken for it.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelip.bench.data.archive import check_regular, reading
from onelip.bench.data.arrays import assemble, to_labels, to_pixels
from onelip.bench.data.cache import kept, own_name
from onelip.bench.data.dataset import Dataset
from onelip.errors import InvalidInputError, one_line
from onelip.machine_memory import most_bytes

_ALWAYS_READ = 2**28
_HIGHEST_COMPRESSION = 300
"""More than pictures are ever compressed to; zeros, of which bombs are made, to a thousandth."""
_KEYS = {
    "images": ("images", "train_images", "x_train"),
    "labels": ("labels", "train_labels", "y_train"),
    "test_images": ("test_images", "x_test"),
    "test_labels": ("test_labels", "y_test"),
    "class_names": ("class_names",),
}


def read_npz(path: Path | str, seed: int = 0) -> Dataset:
    """The data set in a file with `images`, `labels` and, if it has them, `test_images`, `test_labels`, `class_names`.

    It is kept in the cache, from which it comes the next time.
    """
    path = Path(path)
    check_regular(path)
    with reading(path, " or not a NumPy archive"):
        with path.open("rb") as stream:
            name = own_name("npz", path.stem, hashlib.file_digest(stream, "sha256").hexdigest())
        return kept(name, lambda: _read(path, name, seed))


def _read(path: Path, name: str, seed: int) -> Dataset:
    arrays = _read_arrays(path)
    parts = [
        (to_pixels(arrays[f"{part}images"], f"{part}images"), to_labels(arrays[f"{part}labels"], f"{part}labels"))
        for part in ("", "test_")
        if f"{part}images" in arrays
    ]
    names = [str(one) for one in arrays["class_names"]] if "class_names" in arrays else None
    return assemble(name, parts, names, f"read from {path.resolve()}", seed)


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    with zipfile.ZipFile(path) as archive:
        present = set(archive.namelist())
        for key, spellings in _KEYS.items():
            found = next((one for one in spellings if f"{one}.npy" in present), None)
            if found is not None:
                arrays[key] = _read_array(archive, found)
    for key in ("images", "labels"):
        if key not in arrays:
            there = ", ".join(sorted(present)[:6]) or "nothing"
            raise InvalidInputError(f"has no array {key!r}; it has {there}")
    if ("test_images" in arrays) != ("test_labels" in arrays):
        raise InvalidInputError("test_images and test_labels belong together, one of them is missing")
    return arrays


def _read_array(archive: zipfile.ZipFile, key: str) -> NDArray[Any]:
    member, most = archive.getinfo(f"{key}.npy"), most_bytes()
    with archive.open(f"{key}.npy") as stream:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise InvalidInputError(f"{key} is of a NumPy format {version} that is not read here")
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        try:
            shape, fortran, dtype = read_header(stream)
        except Exception as error:  # NumPy reads a header as Python: a damaged one can fail in any way at all
            raise InvalidInputError(f"the header of {key} is damaged ({one_line(error):.200})") from error
        if dtype.hasobject:
            raise InvalidInputError(f"{key} holds Python objects, which are never read; save plain numbers")
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize if shape else dtype.itemsize
        if size > min(member.file_size, most):
            raise InvalidInputError(f"{key} claims {size:,} bytes, more than the file has or than is read ({most:,})")
        if size > max(_ALWAYS_READ, _HIGHEST_COMPRESSION * member.compress_size):
            raise InvalidInputError(
                f"{key} claims {size:,} bytes in {member.compress_size:,}: no pictures are so alike"
            )
        array = np.frombuffer(bytearray(stream.read(size)), dtype=dtype)
    if array.nbytes != size:
        raise InvalidInputError(f"{key} is cut short")
    return array.reshape(shape, order="F" if fortran else "C")
