"""Bounds of several nodes together, where they are tighter than each alone.

Wanted is a bound of sum_i w_i ||d_i||^2 for nodes i that have inputs in common. Each node is replaced by its own
inputs as long as entries can be told apart, latest node first, so that everything which comes from one node meets
there:

* entries that were moved: a weight goes to the entry it came from; entries that were copied collect several;
* an entrywise function of slope c multiplies weights by c^2;
* the larger and the smaller of a and b: |d max|^2 + |d min|^2 <= |d a|^2 + |d b|^2 entry by entry, and each alone is no
  larger than the sum. This makes a MaxMin that is written by hand 1-Lipschitz.

After every step, sum_i max(w_i) ||d_i||^2 is a bound; the smallest of them counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from onelip.certification.graph import (
    SMALLEST_SQUARE,
    Entrywise,
    EntrywiseAffine,
    Extremum,
    Moved,
    Node,
    root_bound,
    square_bound,
)

_STEPS = 64
"""Replacements that are tried before the bounds found so far are taken."""

Weights = dict[Node, Tensor]
"""One weight for each entry of a node."""


def joint_lipschitz(inputs: Sequence[tuple[Node, float]]) -> float:
    """Bound of sqrt(sum_i c_i^2 ||d_i||^2) / ||x - x'||."""
    return min(_total(found) for found, _ in alternatives(inputs))


def _total(weights: dict[Node, float]) -> float:
    return root_bound([weight * square_bound(node.lipschitz) for node, weight in weights.items() if weight])


def alternatives(inputs: Sequence[tuple[Node, float]]) -> Iterator[tuple[dict[Node, float], bool]]:
    """Sets of nodes and weights that bound the sum, and whether all nodes replaced on the way round nothing."""
    if len(inputs) < 2 or not any(_is_open(node) for node, _ in inputs):
        plain: dict[Node, float] = {}
        for node, coefficient in inputs:
            plain[node] = plain.get(node, 0.0) + square_bound(coefficient)
        yield plain, True
        return
    weights: Weights = {}
    for node, coefficient in inputs:
        _add(weights, node, torch.full((_entries(node),), square_bound(coefficient), dtype=torch.float64))
    exact = True
    for _ in range(_STEPS):
        yield {node: _largest(weight) for node, weight in weights.items()}, exact
        latest = max((node for node in weights if _is_open(node)), key=lambda node: node.index, default=None)
        if latest is None or (len(weights) == 1 and latest.fact(Moved) is None):
            return
        exact = exact and latest.rounds_nothing
        _replace(weights, latest)


def _largest(weight: Tensor) -> float:
    """Rounded upwards; integers are exact."""
    found = float(weight.amax()) if weight.numel() else 0.0
    return found if found.is_integer() else found * (1 + 2.0**-50)


def _entries(node: Node) -> int:
    return torch.Size(node.shape).numel()


def _is_open(node: Node) -> bool:
    return any(isinstance(fact, Moved | Extremum | Entrywise | EntrywiseAffine) for fact in node.facts)


def _add(weights: Weights, node: Node, weight: Tensor) -> None:
    weights[node] = weights[node] + weight if node in weights else weight


def _replace(weights: Weights, node: Node) -> None:
    """Take the node out and put its inputs in."""
    weight = weights.pop(node)
    moved = node.fact(Moved)
    if moved is not None:
        for position, source in enumerate(node.inputs):
            index = moved.indices(position)
            kept = index >= 0
            collected = torch.zeros(_entries(source), dtype=torch.float64)
            _add(weights, source, collected.index_add_(0, index[kept], weight[kept]))
        return
    if node.fact(Extremum) is None:
        square = square_bound(node.coefficients[0])
        product = (weight * square * (1 + 2.0**-50)).clamp(min=SMALLEST_SQUARE)
        _add(weights, node.inputs[0], weight if square == 1 else torch.where(weight * square > 0, product, 0.0))
        return
    partner = next((other for other in weights if _are_partners(node, other)), None)
    if partner is not None:
        weight = torch.maximum(weight, weights.pop(partner))
    for source in node.inputs:
        _add(weights, source, weight)


def _are_partners(node: Node, other: Node) -> bool:
    kinds = node.fact(Extremum), other.fact(Extremum)
    return None not in kinds and kinds[0] != kinds[1] and set(node.inputs) == set(other.inputs)
