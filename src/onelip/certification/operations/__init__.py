"""The operations of torch that have a proven bound, and what is said about those that have none."""

from __future__ import annotations

# Importing these registers the operations that they know.
from onelip.certification.operations import (
    arithmetic,
    batch_inside,
    elementwise,
    movement,
    products,
    reductions,
    windows,
)
from onelip.certification.operations.refused import module_refusal, refusal
from onelip.certification.operations.registered import find_inside, find_operation

__all__ = [
    "arithmetic",
    "batch_inside",
    "elementwise",
    "find_inside",
    "find_operation",
    "module_refusal",
    "movement",
    "products",
    "reductions",
    "refusal",
    "windows",
]
