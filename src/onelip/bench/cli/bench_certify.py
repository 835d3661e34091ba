"""`onelip bench certify` and `onelip bench bounds`: what certificates cost on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Certify:
    """Time certificates for CIFAR-sized images in turns with the plain float64 pass of the same network."""

    methods: tuple[str, ...] = ()
    """Keys of methods, such as aol lot soc; all methods if none is given."""
    images: int = 1000
    """Images to certify; both costs are proportional to it."""
    size: Literal["XS", "S", "M", "L"] = "XS"
    """Size of the paper's ConvNet."""
    arithmetic: Literal["float64", "float32"] = "float64"
    """Which program the certificates speak of."""
    json: bool = False
    """Print a JSON list instead of a table."""

    def run(self) -> int:
        """Measure and print."""
        from onelip.bench.measurement.certify_cost import time_certify

        timings = _measure(self.methods, lambda m: time_certify(m, self.size, self.images, arithmetic=self.arithmetic))
        rows = [
            (
                t.method,
                f"{t.forward_seconds:.2f}",
                f"{t.certify_seconds:.2f}",
                f"{t.ratio:.2f}",
                f"{t.bounds_seconds:.1f}",
                f"{t.lipschitz - 1:.1e}",
            )
            for t in timings
        ]
        titles = ("method", "pass s", "certify s", "ratio", "bounds s", "L - 1")
        _show(timings, self.json, titles, rows, f"{self.images} images, ConvNet {self.size}; bounds are proven once")
        return 0


@dataclass(frozen=True)
class Bounds:
    """Time the proven Lipschitz bounds of networks, parameter transformations included."""

    methods: tuple[str, ...] = ()
    """Keys of methods, such as aol lot soc; all methods if none is given."""
    size: Literal["XS", "S", "M", "L"] = "M"
    """Size of the paper's ConvNet."""
    json: bool = False
    """Print a JSON list instead of a table."""

    def run(self) -> int:
        """Measure and print."""
        from onelip.bench.measurement.certify_cost import time_bounds

        timings = _measure(self.methods, lambda method: time_bounds(method, self.size))
        rows = [
            (t.method, f"{t.wall_seconds:.1f}", f"{t.processor_seconds:.1f}", f"{t.lipschitz - 1:.1e}") for t in timings
        ]
        _show(timings, self.json, ("method", "seconds", "processor s", "L - 1"), rows, f"ConvNet {self.size}")
        return 0


def _measure(methods: Sequence[str], measure: Callable[[str], Any]) -> list[Any]:
    from rich.console import Console
    from rich.progress import track

    from onelip.layers import get_method, list_methods

    keys = [get_method(name).key for name in methods] or [method.key for method in list_methods()]
    return [measure(key) for key in track(keys, "measuring", console=Console(stderr=True), transient=True)]


def _show(timings: list[Any], as_json: bool, titles: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> None:
    if as_json:
        print(json.dumps([asdict(timing) for timing in timings], indent=2))
        return
    import torch
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(titles[0], style="bold", no_wrap=True)
    for title in titles[1:]:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"{note}; {torch.get_num_threads()} threads")
