"""What `--dataset` and `--datasets` take: the name of a data set, a folder of images, or a NumPy archive.

A folder or file is read, kept in the cache and replaced by its name: specs, records and jobs know names only. Commands
do so once they have checked their other arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onelip.bench.records.data_sets import dataset_info
from onelip.bench.terminal import say
from onelip.errors import InvalidInputError, OnelipError
from onelip.protocol import DATA_SETS

if TYPE_CHECKING:
    from onelip.bench.data import Dataset


def check_names(given: str | tuple[str, ...]) -> None:
    """Refuse the name of a data set that there is not; paths are looked at when they are read."""
    for text in (given,) if isinstance(given, str) else given:
        if not is_path(text):
            dataset_info(text)


def is_path(text: str) -> bool:
    """Whether a user means a folder or a file, and not the name of a data set."""
    path = Path(text).expanduser()
    return text not in DATA_SETS and (path.exists() or path.suffix == ".npz" or "/" in text)


def dataset_name(text: str) -> str:
    """The name of the data set that a user means; a path is read, and what was found there is said on stderr."""
    if not is_path(text):
        return text
    try:
        dataset = read_path(Path(text).expanduser())
    except OnelipError as error:
        raise InvalidInputError(f"--dataset {error}") from error
    say(describe(dataset))
    return dataset.name


def read_path(path: Path) -> Dataset:
    """The data set in a folder of images or a NumPy archive."""
    from onelip.bench.data import read_folder, read_npz

    return read_folder(path) if path.is_dir() else read_npz(path)


def describe(dataset: Dataset) -> str:
    """One line for people: how many images of which size, and what is done with them."""
    from onelip.models.config import ConvNetConfig

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
