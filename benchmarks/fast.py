"""What each row of `onelip.fast` gains: a step, inference and peak memory without it, relative to all rows together.

    python benchmarks/fast.py [--methods aol soc ...] [--sizes XS S M] [--batches 64 256] [--rounds 9] [--row NAME]
    python benchmarks/fast.py --accelerator ...     # launches and memory as counted without one

The comparison paper's ConvNet on 32 x 32 images, one thread. Of every method those rows are measured that it takes.
Each round times a step with the row and one without it right after the other, in processor time; the ratio is the
median over rounds, so that other work on the machine hits both. Memory is that of the tensors alive, counted, not
timed. The line "all" switches everything off: `onelip.fast.off()`. What an accelerator would do is counted on tensors
without numbers: kernel launches of a forward pass in training, and memory of two steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip import ConvNet
from onelip.bench.measurement.launches import Launches
from onelip.bench.measurement.memory import LiveTensors, measure_memory
from onelip.bench.measurement.networks import leave_start, training_step
from onelip.fast import ROWS, Row, off
from onelip.layers import list_methods
from onelip.linalg.devices import pretend_device


@contextmanager
def without(row: Row | None) -> Iterator[None]:
    """The library without this row, or without any."""
    if row is None:
        with off():
            yield
        return
    before = row.definition.forms
    row.definition.forms = tuple(form for form in before if form is not row)
    try:
        yield
    finally:
        row.definition.forms = before


def rows_taken(action: Callable[[], object]) -> list[Row]:
    """The rows by which something is computed."""
    taken: dict[str, Row] = {}
    before = {row.name: row.definition.forms for row in ROWS}

    def spy(row: Row) -> Row:
        def compute(*arguments: object) -> object:
            taken[row.name] = row
            return row.compute(*arguments)

        return Row(row.definition, compute, row.devices, row.gain, row.suits, row.error)

    for definition in {row.definition for row in ROWS}:
        definition.forms = tuple(spy(form) for form in definition.forms if isinstance(form, Row))
    try:
        action()
    finally:
        for row in ROWS:
            row.definition.forms = before[row.name]
    return list(taken.values())


def ratio(action: Callable[[], object], row: Row | None, rounds: int) -> float:
    """Median over rounds of processor time without the row over that with it."""
    found: list[float] = []
    for number in range(rounds + 1):
        times = {}
        for switched_off in (False, True) if number % 2 else (True, False):
            start = time.process_time()
            if switched_off:
                with without(row):
                    action()
            else:
                action()
            times[switched_off] = time.process_time() - start
        found.append(times[True] / times[False])
    return statistics.median(found[1:])  # the first round fills caches


def measure(method: str, size: str, batch: int, rounds: int, only: str | None) -> None:
    """Print one line per row that a network takes."""
    torch.manual_seed(0)
    model: nn.Module = ConvNet(method, size, num_classes=10)
    with torch.no_grad():
        leave_start(model)
    x, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    optimiser = torch.optim.SGD(model.parameters(), 1e-4)

    def step() -> None:
        model.train()
        optimiser.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimiser.step()

    def inference() -> Tensor:
        with torch.no_grad():
            return model(x)

    def peak() -> int:
        model.train()
        return measure_memory(model, x, labels).training

    def evaluated() -> None:
        model.eval()
        inference()

    training = {row.name for row in rows_taken(step)}
    rows = [row for row in rows_taken(lambda: (step(), evaluated())) if only is None or only in row.name]
    whole = peak()
    for row in [*rows, *([] if only else [None])]:
        stepped = ratio(step, row, rounds) if row is None or row.name in training else 1.0
        with without(row):
            memory = peak() / whole
        model.eval()
        inference()  # fills the cache
        infers = ratio(inference, row, rounds)
        name = "all" if row is None else row.name
        print(f"{method:12} {size:3} {batch:4}  {name:52} {stepped:6.2f} {infers:6.2f} {memory:6.2f}", flush=True)


def count(method: str, size: str, batch: int, only: str | None) -> None:
    """Print one line per row that a network takes on an accelerator."""

    def network() -> tuple[ConvNet, Tensor]:
        return ConvNet(method, size, num_classes=10).train(), torch.empty(batch, 3, 32, 32)

    def launches() -> int:
        model, x = network()
        with torch.no_grad():
            model(x)  # makes constants
            with Launches() as counted:
                model(x)
        return counted.counts.total()

    def peak() -> int:
        model, x = network()
        labels = torch.empty(batch, dtype=torch.long)
        with LiveTensors() as live:
            live.add([*model.parameters(), *model.buffers(), x, labels])
            step = training_step(model, x, labels)
            step()
            step()
        return live.peak

    with torch.device("meta"), pretend_device("accelerator"):
        rows = [row for row in rows_taken(lambda: (peak(), launches())) if only is None or only in row.name]
        all_launches, all_memory = launches(), peak()
        for row in rows:
            with without(row):
                found = launches() / all_launches, peak() / all_memory
            print(f"{method:12} {size:3} {batch:4}  {row.name:52} {found[0]:8.2f} {found[1]:6.2f}", flush=True)


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=[method.key for method in list_methods()])
    parser.add_argument("--sizes", nargs="+", default=["XS", "S", "M"])
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--row", help="a part of a row's name: only these")
    parser.add_argument("--accelerator", action="store_true", help="count launches and memory in place of time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = "launches memory" if options.accelerator else "  step  infer. memory"
    print(f"{'method':12} size batch {'without':52} {columns}")
    for size in options.sizes:
        for batch in options.batches:
            for method in options.methods:
                if options.accelerator:
                    count(method, size, batch, options.row)
                else:
                    measure(method, size, batch, options.rounds, options.row)


if __name__ == "__main__":
    main()
