"""The operations of torch that have a proven bound, and what is said about those that have none."""

from __future__ import annotations

# Importing these registers the operations that they know.
from onelip.certification.operations import (
    arithmetic,
    batch_elsewhere,
    batch_inside,
    bounded_products,
    elementwise,
    in_ranges,
    linear_maps,
    movement,
    own_constants,
    products,
    reductions,
    scalar_functions,
    windows,
)
from onelip.certification.operations.batch_elsewhere import with_batch_first
from onelip.certification.operations.refused import module_refusal, refusal
from onelip.certification.operations.registered import RuleError, find_inside, find_operation

__all__ = [
    "RuleError",
    "arithmetic",
    "batch_elsewhere",
    "batch_inside",
    "bounded_products",
    "elementwise",
    "find_inside",
    "find_operation",
    "in_ranges",
    "linear_maps",
    "module_refusal",
    "movement",
    "own_constants",
    "products",
    "reductions",
    "refusal",
    "scalar_functions",
    "windows",
    "with_batch_first",
]
