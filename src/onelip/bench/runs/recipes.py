"""Recipes of training: settings that belong together. docs/training.md has reasons and figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """Defaults of a `RunSpec`; each one that is given there wins."""

    optimizer: str
    batch_size: int
    temperature: float


RECIPES = {
    "paper": Recipe(optimizer="sgd", batch_size=256, temperature=0.25),
    "short": Recipe(optimizer="adam", batch_size=64, temperature=2.0),
}
"""paper: for hours. short: for seconds to minutes, a few hundred steps."""

PAPER_FROM_SECONDS = 3600.0
"""Budgets below this follow the recipe "short" unless told otherwise: the paper's shortest is two hours."""
