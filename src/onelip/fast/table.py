"""The table of forms: which definition, by what, on which devices, at what gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onelip.linalg.definition import Definition
from onelip.linalg.devices import is_cpu

Devices = Literal["cpu", "accelerator", "all"]


@dataclass(frozen=True)
class Row:
    """One form of one definition.

    `compute` gives the value of the definition for all arguments that `suits` accepts, on `devices`, as that of the
    first argument; it is differentiated as often as the definition is. It differs by rounding, or by at most `error`
    relative to the largest number: a form with an error may stand for definitions of training alone. `gain` says what
    `benchmarks/fast.py` measured: what a network takes without it, relative to the network with it; batch 64.
    """

    definition: Definition[..., Any]
    compute: Callable[..., Any]
    devices: Devices
    gain: str
    suits: Callable[..., bool] = lambda *_: True
    error: float = 0

    @property
    def name(self) -> str:
        """The definition and its form: a function, or a class with `apply`."""
        form = getattr(self.compute, "__self__", self.compute)
        return f"{self.definition.body.__name__}: {form.__name__.lstrip('_')}"

    def accepts(self, *arguments: Any) -> bool:
        """Whether it is the way to take for these arguments."""
        here = self.devices == "all" or is_cpu(arguments[0].device) == (self.devices == "cpu")
        return here and self.suits(*arguments)


def install(rows: Sequence[Row]) -> None:
    """Give every definition its forms, the first ones first."""
    for row in rows:
        row.definition.forms = (*row.definition.forms, row)
