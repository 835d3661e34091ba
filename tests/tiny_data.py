"""A data set for tests of training: 8 x 8 images of 4 classes that a small network tells apart in seconds.

As a script, the command `onelip` with this data set under the name "tiny": python tests/tiny_data.py train ...
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from onelip.bench.data import catalogue
from onelip.bench.data.base import Dataset, DatasetInfo

INFO = DatasetInfo("tiny", "noisy patterns", 4, 8, 320, 100, (0.5, 0.5, 0.5), "crop-flip")


@functools.cache
def tiny_dataset() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    patterns = torch.tensor([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]])[:, :, None, None] * 120 + 64

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(count) % 4
        noise = torch.randint(-60, 61, (count, 3, 8, 8), generator=generator)
        return (patterns[labels] + noise).clamp(0, 255).to(torch.uint8), labels

    return Dataset(INFO, *part(INFO.train_size), *part(INFO.test_size), class_names=("a", "b", "c", "d"))


def install(target: Any) -> None:
    """Make the data set known; `target(object, name, value)` sets an attribute, as `setattr` does."""
    entry = catalogue.Entry(INFO, (), lambda path, progress: tiny_dataset())
    target(catalogue, "_ENTRIES", {**catalogue._ENTRIES, INFO.name: entry})
    target(catalogue, "load_cached", lambda info: tiny_dataset())


if __name__ == "__main__":
    from onelip.bench.cli import main

    install(setattr)
    main()
