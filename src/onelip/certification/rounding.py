"""How far a floating-point pass can be from the exact function, node by node and sample by sample.

Errors at the inputs of a node become one at its output by the inequality of the node (see `graph`), and the node adds
slope * ||inputs|| + constant of its own; or, where that was measured for the inputs at hand, as much as there and slope
times the distance from them.
The norms are measured at x; at a point within a radius r of x they can be larger by lipschitz * r and by the errors
made so far. Values that only moved share their errors: see `joint`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from onelip.certification.graph import Node
from onelip.certification.joint import alternatives
from onelip.proofs.layer_bound import Arithmetic, RoundingError, largest_activation
from onelip.proofs.proven import SAFETY


class ForwardError(NamedTuple):
    """For each node by its index: a bound of the error of its value, and of the norm of what was computed."""

    errors: dict[int, Tensor]
    norms: dict[int, Tensor]


def own_rounding(node: Node, arithmetic: Arithmetic, assumed: float) -> RoundingError:
    """What the call itself adds; where that is not declared, `assumed` times what it could be (0: it is exact)."""
    if node.rounding is not None:
        return node.rounding(arithmetic)
    relative = assumed * math.sqrt(arithmetic.unit_roundoff)
    return RoundingError(relative * node.coefficients[0], relative * (node.exact_offset + 1.0))


def error_at_sample(nodes: Sequence[Node], arithmetic: Arithmetic, batch: int, assumed: float = 0.0) -> ForwardError:
    """The error of a pass in this arithmetic whose computed activations have the norms that were measured."""
    return _propagated(nodes, arithmetic, torch.zeros(batch, dtype=torch.float64), None, assumed)


def error_in_ball(
    nodes: Sequence[Node], arithmetic: Arithmetic, at_sample: ForwardError, radii: Tensor, assumed: float = 0.0
) -> ForwardError:
    """The error of any pass in this arithmetic at any point within `radii` of the samples.

    `at_sample` is that of the float64 pass in which norms were measured.
    """
    return _propagated(nodes, arithmetic, radii, at_sample, assumed)


def _propagated(
    nodes: Sequence[Node], arithmetic: Arithmetic, radii: Tensor, measured: ForwardError | None, assumed: float
) -> ForwardError:
    errors: dict[int, Tensor] = {}
    norms: dict[int, Tensor] = {}
    limit = largest_activation(arithmetic)
    for node in nodes:
        error = _carried(node, errors, radii)
        if node.inputs and not node.rounds_nothing:
            made = own_rounding(node, arithmetic, assumed)
            size = torch.zeros_like(radii)
            for source, weight in zip(node.inputs, node.weighted, strict=True):
                size = size + weight * norms[source.index]
            added = made.slope * size + made.constant
            if node.measured is not None and node.measured.arithmetic == arithmetic:
                here = node.measured.errors
                added = torch.minimum(added, here + made.slope * moved_by(node, norms)).masked_fill(
                    here.isinf(), torch.inf
                )
            overflows = ~(added / arithmetic.unit_roundoff + size <= limit)
            if node.margin < math.inf:
                for source in node.inputs:
                    overflows |= ~(errors[source.index] <= node.margin)
            if node.peak is not None:
                overflows |= ~(node.peak(size + added) <= limit)
            error = (error + added.masked_fill(overflows, torch.inf)) * SAFETY
        errors[node.index] = error
        if node.norm is not None:
            norm = node.norm if measured is None else node.norm + measured.errors[node.index] + node.lipschitz * radii
            norms[node.index] = (norm + (0.0 if measured is None else error)) * SAFETY
    return ForwardError(errors, norms)


def moved_by(node: Node, norms: dict[int, Tensor]) -> Tensor:
    """How far the only input of a node may be from the measured one: what its norm may exceed the measured norm by."""
    (source,) = node.inputs
    assert source.norm is not None
    return norms[source.index] - source.norm


def _carried(node: Node, errors: dict[int, Tensor], radii: Tensor) -> Tensor:
    """The errors of the inputs as they arrive at the output."""
    if not node.inputs:
        return torch.zeros_like(radii)
    pairs = list(zip(node.inputs, node.coefficients, strict=True))
    if len(pairs) == 1:
        return _times(node.coefficients[0], errors[node.inputs[0].index])
    if not node.joint:
        total = torch.zeros_like(radii)
        for source, coefficient in pairs:
            total = total + _times(coefficient, errors[source.index])
        return total * SAFETY
    best = torch.full_like(radii, torch.inf)
    for weights, exact in alternatives(pairs):
        if exact:
            squares = sum((_times(weight, errors[source.index] ** 2) for source, weight in weights.items()), 0 * radii)
            best = torch.minimum(best, squares.sqrt() * SAFETY + 2.0**-530)
    return best


def _times(factor: float, values: Tensor) -> Tensor:
    """0 times infinity is 0 here: a constant does not depend on what is not known."""
    return torch.zeros_like(values) if factor == 0 else factor * values
