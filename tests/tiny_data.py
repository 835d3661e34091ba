"""A data set for tests of training: 8 x 8 images of 4 classes that a small network tells apart in seconds.

As a script, the command `onelip` with this data set under the name "tiny": python tests/tiny_data.py train ...
With TINY_KILL_AFTER=7 in the environment it kills itself after 7 steps of training; with TINY_TICK=0.05 the training
time is that of a `ticking_clock`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import torch

from onelip.bench.data import Dataset, DatasetInfo, catalogue
from onelip.bench.records import NetworkSpec, RunOptions, RunSpec, data_sets
from onelip.bench.records.durations import TrainingClock
from onelip.bench.training import loop
from onelip.bench.training.resolve import resolve
from onelip.bench.training.trainer import Trainer

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
    entry = catalogue.CatalogueEntry(INFO, catalogue.RemoteFile("", "", 0), lambda path, progress: tiny_dataset())
    target(catalogue, "_ENTRIES", {**catalogue._ENTRIES, INFO.name: entry})
    target(data_sets, "DATA_SETS", {**data_sets.DATA_SETS, INFO.name: INFO})
    stored = catalogue.load_cached
    target(catalogue, "load_cached", lambda info: stored(info) if ":" in info.name else tiny_dataset())


def run_spec(**values: Any) -> RunSpec:
    """A run from flat values, as the command line takes them."""
    names = {field.name for field in dataclasses.fields(NetworkSpec)}
    network = NetworkSpec(**{name: value for name, value in values.items() if name in names})
    return resolve(RunOptions(network=network, **{name: value for name, value in values.items() if name not in names}))


def ticking_clock(tick: float) -> Callable[..., TrainingClock]:
    """In the place of `TrainingClock`: goes on by `tick` seconds whenever it is read, whatever the machine does."""
    return functools.partial(TrainingClock, now=itertools.count(0, tick).__next__)


def _kill_after(steps: int) -> None:
    original, count = Trainer.step, itertools.count(1)

    def step(self: Trainer, *args: Any) -> float:
        if next(count) > steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *args)

    Trainer.step = step  # type: ignore[method-assign]


if __name__ == "__main__":
    from onelip.bench.cli import main
    from onelip.bench.engines import engine_base

    install(setattr)
    engine_base.PROGRAM = (sys.executable, __file__)  # jobs of a study know the data set, too
    if "TINY_KILL_AFTER" in os.environ:
        _kill_after(int(os.environ["TINY_KILL_AFTER"]))
    if "TINY_TICK" in os.environ:
        loop.TrainingClock = ticking_clock(float(os.environ["TINY_TICK"]))  # type: ignore[misc]
    main()
