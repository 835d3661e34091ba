"""`onelip budget`: how many epochs fit in a time, for all methods and sizes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from onelip.bench.cli import CommandInfo
from onelip.bench.runs.durations import format_duration, parse_duration

_GROWTH = 4.0  # a network of twice the width takes at least about this much longer


@dataclass(frozen=True)
class BudgetCommand:
    """Print the epochs that fit in a training budget, for all methods and sizes.

    Steps are timed with small batches on this machine: time = a + c * batch.

    A size that would take longer to measure than --limit is shown as "..".
    """

    budget: str = "2h"
    """Training time, such as 2h, 10h, 24h, 5m."""
    dataset: str = "cifar10"
    """Data set whose images and number of training images are taken; it need not be on this machine."""
    methods: tuple[str, ...] = ()
    """Methods; by default all."""
    sizes: tuple[Literal["XS", "S", "M", "L"], ...] = ("XS", "S", "M", "L")
    """Sizes of the network."""
    batch_size: int = 256
    """Images per step."""
    limit: str = "20s"
    """Longest time to measure one method in one size, as foreseen from the size before."""
    device: str | None = None
    """cpu, cuda, ...; by default a GPU where there is one."""
    json: bool = False
    """Print seconds per step and epochs as JSON."""

    def run(self) -> int:
        """Measure and print the table."""
        from onelip.layers import get_method, list_methods

        keys = [get_method(key).key for key in self.methods] or [method.key for method in list_methods()]
        rows = {key: self._row(key, parse_duration(self.limit)) for key in keys}
        if self.json:
            from onelip.bench.runs import dump_json

            print(dump_json({"budget_seconds": parse_duration(self.budget), "batch_size": self.batch_size} | rows))
        else:
            self._print(rows)
        return 0

    def _row(self, method: str, limit: float) -> dict[str, dict[str, float] | None]:
        import torch

        from onelip.bench.data import get_dataset
        from onelip.bench.runs import NetworkSpec, RunSpec
        from onelip.bench.training.step_time import measure_step_time

        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        row: dict[str, dict[str, float] | None] = {}
        foreseen = 0.0
        for size in self.sizes:
            row[size] = None
            if foreseen > limit:
                continue
            network = NetworkSpec(method=method, size=size, dataset=self.dataset)
            config = RunSpec(network=network, budget=self.budget, batch_size=self.batch_size)
            start = time.perf_counter()
            step = measure_step_time(config, device)
            foreseen = _GROWTH * (time.perf_counter() - start)
            epochs = step.epochs(parse_duration(self.budget), self.batch_size, get_dataset(self.dataset).train_size)
            row[size] = {"seconds_per_step": step.seconds(self.batch_size), "epochs": epochs}
        return row

    def _print(self, rows: dict[str, dict[str, dict[str, float] | None]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        budget = format_duration(parse_duration(self.budget))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("method", style="bold")
        for size in self.sizes:
            table.add_column(size, justify="right")
        for method, row in rows.items():
            cells = (row[size] for size in self.sizes)
            table.add_row(method, *(".." if cell is None else _number(cell["epochs"]) for cell in cells))
        console = Console(highlight=False)
        console.print(f"epochs on {self.dataset} in {budget} on this machine, batches of {self.batch_size}")
        console.print(table)


def _number(epochs: float) -> str:
    return f"{epochs:.0f}" if epochs >= 10 else f"{epochs:.2g}"


COMMAND = CommandInfo("budget", BudgetCommand)
