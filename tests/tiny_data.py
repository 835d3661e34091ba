"""A data set for tests of training: 8 x 8 images of 4 classes that a small network tells apart in seconds.

As a script, the command `onelip` with this data set under the name "tiny": python tests/tiny_data.py train ...
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from onelip.bench.data import Dataset, DatasetInfo, catalogue
from onelip.bench.runs import NetworkSpec, RunSpec, specs

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
    target(specs, "DATA_SETS", {**specs.DATA_SETS, INFO.name: INFO})
    target(catalogue, "load_cached", lambda info: tiny_dataset())


def run_spec(**values: Any) -> RunSpec:
    """A run from flat values, as the command line takes them."""
    names = {field.name for field in dataclasses.fields(NetworkSpec)}
    network = NetworkSpec(**{name: value for name, value in values.items() if name in names})
    return RunSpec(network=network, **{name: value for name, value in values.items() if name not in names})


if __name__ == "__main__":
    import sys

    from onelip.bench.cli import main
    from onelip.bench.engines import engine_base

    install(setattr)
    engine_base.PROGRAM = (sys.executable, __file__)  # jobs of a study know the data set, too
    main()
