"""Predicted training memory of the paper's networks at batch 256, shipped with the package.

It says what fits a card before anything was measured. The file is made from records, never by hand:

    for device in cpu cuda; do onelip measure memory --predict --device $device --runs-dir /tmp/predicted \\
        --sizes XS S M L --datasets cifar10 tiny-imagenet; done
    python benchmarks/predicted_memory.py /tmp/predicted
"""

from __future__ import annotations

import csv
import functools
from importlib import resources
from typing import Literal

from onelip.protocol import DATA_SETS

FILE = "predicted_training_memory.csv"

IMAGE_SIZES = {name: info.image_size for name, info in DATA_SETS.items()}
"""Memory and time depend on the image size; the number of classes does not change these networks."""


@functools.cache
def predicted_training_memory(place: Literal["cpu", "gpu"]) -> dict[tuple[str, str, int], int]:
    """(method, size, image size) to the peak of live tensors in training, in bytes, in the forms of CPUs or of GPUs."""
    text = resources.files("onelip.bench.published").joinpath(FILE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["method"], row["size"], int(row["image_size"])): int(row[f"{place}_bytes"]) for row in rows}
