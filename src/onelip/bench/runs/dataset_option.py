"""`--dataset` on the command line: the name of a data set, a folder of images, or a NumPy archive.

A folder or file is read, kept in the cache and replaced by its name: specs, records and jobs know names only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from onelip.bench.data import Dataset, read_folder, read_npz
from onelip.bench.terminal import say
from onelip.errors import OnelipError
from onelip.models.config import ConvNetConfig
from onelip.protocol import DATA_SETS


class DatasetOptionError(OnelipError):
    """Not a ValueError, which the parser of the command line would catch and put into a frame."""


def dataset_name(text: str) -> str:
    """The name of the data set that a user means; a path is read, and what was found there is said on stderr."""
    path = Path(text).expanduser()
    if text in DATA_SETS or not (path.exists() or path.suffix == ".npz" or "/" in text):
        return text
    try:
        dataset = read_path(path)
    except OnelipError as error:
        raise DatasetOptionError(f"--dataset {error}") from error
    say(describe(dataset))
    return dataset.name


def read_path(path: Path) -> Dataset:
    """The data set in a folder of images or a NumPy archive."""
    return read_folder(path) if path.is_dir() else read_npz(path)


def describe(dataset: Dataset) -> str:
    """One line for people: how many images of which size, and what is done with them."""
    channels, height, width = dataset.info.shape
    config = ConvNetConfig(
        method="standard", size="L", num_classes=1, input_size=height, input_width=width, in_channels=channels
    )
    padded = f"; ConvNet extends them by zeros to {config.padded_size} x {config.padded_size}"
    return (
        f"{dataset.name}: {len(dataset.train_labels):,} training and {len(dataset.test_labels):,} test images in "
        f"{dataset.info.num_classes} classes, {height} x {width} pixels, {channels} channel{'s' * (channels > 1)}"
        f"{padded if any(config.image_padding) else ''}; {dataset.note}"
    )


DATASETS_ALIAS = tyro.conf.arg(aliases=["--dataset"])
"""Where several data sets are taken, the option for one works as well."""

DatasetOption = Annotated[
    str,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME|FOLDER|FILE.npz",
        instance_from_str=lambda texts: dataset_name(texts[0]),
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda name: [name],
    ),
]
