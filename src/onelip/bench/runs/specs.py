"""The identity of networks and runs. Training, measurement, jobs, records and reports all speak of these two."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onelip.errors import InvalidInputError
from onelip.protocol import SIZES


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """One network on one data set. It has one of the paper's sizes (XS if nothing is said) or a width of its own."""

    method: str
    size: str | None = None
    width: int | None = None
    dataset: str = "cifar10"
    kernel_size: int = 3
    model: str = "convnet"

    def __post_init__(self) -> None:
        if self.size is not None and self.width is not None:
            raise InvalidInputError(f"give either a size or a width, not both (size={self.size}, width={self.width})")
        if self.width is None:
            size = "XS" if self.size is None else str(self.size).upper()
            if size not in SIZES:
                raise InvalidInputError(f"there is no size {self.size!r}, use one of {', '.join(SIZES)}")
            object.__setattr__(self, "size", size)

    @property
    def size_name(self) -> str:
        """XS, S, M or L, or w8 for a width of 8."""
        return f"w{self.width}" if self.size is None else self.size

    @property
    def label(self) -> str:
        """In words, for people: `bcop XS cifar10`, with the kernel or the model where they are not the usual ones."""
        kernel = "" if self.kernel_size == 3 else f" {self.kernel_size}x{self.kernel_size}"
        model = "" if self.model == "convnet" else f" {self.model}"
        return f"{self.method} {self.size_name} {self.dataset}{kernel}{model}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in a record."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training of a network: for a time budget or a number of epochs, by a recipe, from a seed."""

    network: NetworkSpec
    budget: str | None = None
    epochs: int | None = None
    batch_size: int = 256
    recipe: str = "paper"
    seed: int = 0

    @property
    def budget_name(self) -> str:
        """30m, or 4 epochs."""
        return self.budget if self.budget is not None else f"{self.epochs} epochs"
