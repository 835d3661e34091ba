"""Tiny ImageNet from the official zip or its unpacked folder, complete or in part.

Training images are those under `train/`; the test set is the official validation set, since the labels of the
official test set were never published. Classes are numbered by their sorted WordNet ids, images within a class
by the number in their file name.

The check is the checksum of the zip, not of the decoded pixels: JPEG decoders may differ by one grey level.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from onelip.bench.data.archive import check_regular, check_size, reading
from onelip.bench.data.dataset import UNREADABLE_IMAGE, Dataset, Progress, decode_all, open_image, silent
from onelip.errors import InvalidInputError
from onelip.protocol import DATA_SETS, DatasetInfo

ZIP_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"
LARGEST_FILE = 2**24
"""The largest file of the data set is words.txt with 2.7 MB."""
TINY_IMAGENET = DATA_SETS["tiny-imagenet"]

Labelled = list[tuple[str, int]]
"""(name of the image file, label)"""


@dataclass(frozen=True)
class _Files:
    """The files of a zip or folder, by their path below `tiny-imagenet-200/`."""

    names: list[str]
    read: Callable[[str], bytes]


def read_tiny_imagenet(
    path: Path, progress: Progress = silent, *, info: DatasetInfo = TINY_IMAGENET, zip_md5: str = ZIP_MD5
) -> Dataset:
    """Decode the zip or folder; a part of the data set is accepted and says so in its note."""
    check_regular(path)
    with reading(path, ", or not a Tiny ImageNet zip or folder"), contextlib.ExitStack() as stack:
        files = _of_folder(path) if path.is_dir() else _of_zip(stack.enter_context(zipfile.ZipFile(path)))
        ids, class_names = _classes(files, info)
        train, test = _train_files(files, ids), _test_files(files, ids)
        names, size = [name for name, _ in train + test], info.image_size
        pixels = decode_all(lambda name: _decode_jpeg(files.read(name), name, size), names, info.shape, progress)
    images = torch.from_numpy(pixels)
    labels = torch.tensor([label for _, label in train + test])
    split = len(train)
    note = _note(path, len(train), len(test), info, zip_md5, progress)
    return Dataset(info, images[:split], labels[:split], images[split:], labels[split:], class_names, note)


def _of_zip(archive: zipfile.ZipFile) -> _Files:
    # The common top folder is cut off; what lies outside it (macOS adds such things) is ignored.
    top = next((name.removesuffix("wnids.txt") for name in archive.namelist() if name.endswith("wnids.txt")), None)
    if top is None:
        raise InvalidInputError("not a Tiny ImageNet zip: there is no wnids.txt in it")
    names = [name.removeprefix(top) for name in archive.namelist() if name.startswith(top)]

    def read(name: str) -> bytes:
        check_size(name, archive.getinfo(top + name).file_size, LARGEST_FILE)  # zipfile reads no more than this
        return archive.read(top + name)

    return _Files(names, read)


def _of_folder(path: Path) -> _Files:
    top = next((folder for folder in (path, path / "tiny-imagenet-200") if (folder / "wnids.txt").is_file()), None)
    if top is None:
        raise InvalidInputError("not a Tiny ImageNet folder: there is no wnids.txt in it")
    patterns = ("*.txt", "train/*/images/*", "val/*.txt", "val/images/*")
    names = [file.relative_to(top).as_posix() for pattern in patterns for file in top.glob(pattern)]

    def read(name: str) -> bytes:
        check_regular(top / name)
        check_size(name, (top / name).stat().st_size, LARGEST_FILE)
        return (top / name).read_bytes()

    return _Files(names, read)


def _classes(files: _Files, info: DatasetInfo) -> tuple[dict[str, int], tuple[str, ...]]:
    wordnet_ids = sorted(files.read("wnids.txt").decode().split())
    if len(set(wordnet_ids)) != info.num_classes:
        raise InvalidInputError(f"wnids.txt names {len(set(wordnet_ids))} classes, expected {info.num_classes}")
    lines = files.read("words.txt").decode().splitlines() if "words.txt" in files.names else []
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    names = tuple(words.get(key, key).split(",")[0].strip() for key in wordnet_ids)
    return {key: number for number, key in enumerate(wordnet_ids)}, names


def _train_files(files: _Files, ids: dict[str, int]) -> Labelled:
    pattern = re.compile(r"train/(n\d+)/images/n\d+_(\d+)\.JPEG")
    found = [(match[1], int(match[2]), name) for name in files.names if (match := pattern.fullmatch(name))]
    if strangers := {key for key, _, _ in found} - ids.keys():
        raise InvalidInputError(f"train/{min(strangers)} is not a class in wnids.txt")
    if missing := ids.keys() - {key for key, _, _ in found}:
        raise InvalidInputError(f"no training images for {len(missing)} of {len(ids)} classes, {min(missing)} for one")
    return [(name, ids[key]) for key, _, name in sorted(found)]


def _test_files(files: _Files, ids: dict[str, int]) -> Labelled:
    rows = [line.split("\t") for line in files.read("val/val_annotations.txt").decode().splitlines() if line]
    labels = {row[0]: row[1] for row in rows if len(row) > 1}
    present = set(files.names)
    found = [(f"val/images/{name}", ids[key]) for name, key in labels.items() if f"val/images/{name}" in present]
    if not found:
        raise InvalidInputError("no validation image of val/val_annotations.txt is there")
    return found


def _decode_jpeg(content: bytes, name: str, size: int) -> NDArray[np.uint8]:
    try:
        with open_image(content, "JPEG") as image:
            if image.size != (size, size):
                raise InvalidInputError(f"{name} has {image.size} pixels, expected ({size}, {size})")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except InvalidInputError:
        raise
    except UNREADABLE_IMAGE as error:
        raise InvalidInputError(f"{name} is not a readable JPEG ({error})") from error


def _note(path: Path, train: int, test: int, info: DatasetInfo, zip_md5: str, progress: Progress) -> str:
    progress("checking", 0, 1)
    if path.is_file():
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "md5").hexdigest() == zip_md5:
                return "official zip, checksum verified"
    counts = f"{train:,} of {info.train_size:,} training and {test:,} of {info.test_size:,} test images"
    kind = "complete" if (train, test) == (info.train_size, info.test_size) else "subset"
    return f"{kind}: {counts}; not the official zip, so not verified"
