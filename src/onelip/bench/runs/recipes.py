"""Recipes of training: settings that belong together. docs/training.md and docs/training_fast.md have the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onelip.protocol import AugmentationName

RecipeName = Literal["paper", "short", "fast"]

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Recipe:
    """Defaults of a `RunSpec`; each one that is given there wins. No augmentation means that of the data set."""

    optimizer: str
    batch_size: int
    temperature: float
    precision: Precision = "float32"
    augmentation: AugmentationName | None = None


RECIPES: dict[str, Recipe] = {
    "paper": Recipe("sgd", 256, 0.25),
    "short": Recipe("adam", 64, 2.0),
    "fast": Recipe("adam", 256, 0.5, "bfloat16", "shift-flip"),
}
"""paper: for hours. short: for seconds to minutes, a few hundred steps. fast: the most within minutes, with fastnet."""

PAPER_FROM_SECONDS = 3600.0
"""Budgets below this follow the recipe "short" unless told otherwise: the paper's shortest is two hours."""


_HALF_A_DAY = 12 * 3600.0

_FAST_FOR_HOURS = Recipe("adam", 256, 0.5, "bfloat16")
"""For many epochs: the augmentation that the paper trains with for hours."""

_FAST_FOR_A_DAY = Recipe("adam", 256, 0.25, "bfloat16")
"""For hundreds of epochs: the paper's temperature too. A network that fits its images needs no large one to learn, and
a small one leaves it more accuracy."""


def recipe_for(name: str, seconds: float | None) -> Recipe:
    """The recipe of that name for a budget; None is a run of epochs. fast has presets for minutes, hours and a day."""
    if name != "fast" or seconds is None or seconds < PAPER_FROM_SECONDS:
        return RECIPES[name]
    return _FAST_FOR_HOURS if seconds < _HALF_A_DAY else _FAST_FOR_A_DAY
