"""How far two scores of a model can move apart: through the rows of a linear head, or through sqrt(2).

For scores y = W g(x) + b, |(y_i - y_j)(x) - (y_i - y_j)(x')| <= ||w_i - w_j|| L_g ||x - x'||, with the Lipschitz
constant L_g of all that comes before. In general e_i - e_j has norm sqrt(2), and the constant is sqrt(2) L. The former
is never worse, and unlike "unit rows and sqrt(2)" it holds for rows of any angle. The head is found in the graph: a
product with a constant matrix on features, behind which scores are only selected, moved, scaled or shifted by
constants.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from onelip.certification.graph import AffineHead, EntrywiseAffine, Graph, Moved, Node
from onelip.proofs.proven import SAFETY, UNIT_ROUNDOFF, gamma

SQRT2 = math.sqrt(2) * (1 + 4 * UNIT_ROUNDOFF[torch.float64])


class LinearHead(NamedTuple):
    """Where the head stands, and its rows and biases with all that is done to the scores afterwards.

    The rows are within `spread` units of roundoff of the exact ones, `magnitudes` bounds the biases before they
    cancel, `terms` counts the roundings of a score, and `growth` is the largest factor that a score is multiplied by
    afterwards.
    """

    source: Node
    rows: Tensor
    magnitudes: Tensor
    spread: int
    terms: int
    growth: float


def find_linear_head(graph: Graph) -> LinearHead | None:
    """The product that makes the scores, if nothing follows that is not affine entry by entry."""
    later: list[Node] = []
    node = graph.output
    while node.fact(AffineHead) is None:
        affine = node.fact(EntrywiseAffine)
        movable = node.fact(Moved) is not None or (affine is not None and len(affine.factor))
        if len(node.inputs) != 1 or not movable:
            return None
        later.append(node)
        node = node.inputs[0]
    return _with_steps(node, later)


def _with_steps(node: Node, later: list[Node]) -> LinearHead | None:
    scores: AffineHead = node.fact(AffineHead)
    rows, magnitudes = scores.rows.cpu(), scores.bias.abs().cpu()
    terms, spread, growth = rows.shape[1] + 1, 0, 1.0
    for step in reversed(later):
        moved, scaled = step.fact(Moved), step.fact(EntrywiseAffine)
        if moved is not None:
            index = moved.indices(0)
            if bool((index < 0).any()):
                return None
            rows, magnitudes = rows[index], magnitudes[index]
        elif scaled is not None:
            factor = scaled.factor.abs()
            rows = rows * scaled.factor[:, None]
            magnitudes = magnitudes * factor + scaled.shift.abs()
            terms, spread = terms + scaled.roundings, spread + 2
            growth = max(1.0, growth * max(1.0, float(factor.amax())))
    return LinearHead(node.inputs[0], rows, magnitudes * SAFETY, spread, terms, growth)


def distances_from(rows: Tensor, chosen: Tensor, spread: int = 0) -> Tensor:
    """Proven upper bounds of ||w_i - w_j|| for the chosen i and all j, (chosen, classes).

    Each difference is rounded relative to itself, and the sum of squares by gamma: no cancellation of products. Rows
    are scaled by a power of two first, so that no square leaves the range of float64.
    """
    scaled, scale = _in_range(rows)
    different, place = chosen.unique(return_inverse=True)
    squares = torch.stack([(scaled - scaled[one]).square().sum(-1) for one in different])
    distances = squares.sqrt() * (1 + gamma(rows.shape[1] + 8)) * SAFETY + _lost(rows)
    if spread:
        norms = scaled.square().sum(-1).sqrt()
        distances = distances + (norms[different, None] + norms) * (2 * spread * UNIT_ROUNDOFF[torch.float64])
    return distances.scatter(1, different[:, None], 0.0)[place] * scale


def row_norms(rows: Tensor) -> Tensor:
    """Proven upper bounds of ||w_i||."""
    scaled, scale = _in_range(rows)
    return (scaled.square().sum(-1).sqrt() * (1 + gamma(rows.shape[1] + 8)) * SAFETY + _lost(rows)) * scale


def _in_range(rows: Tensor) -> tuple[Tensor, float]:
    largest = float(rows.abs().amax()) if rows.numel() else 0.0
    if largest == 0 or not math.isfinite(largest):
        return rows, 1.0
    exponent = math.frexp(largest)[1]
    if exponent > 1000:  # 2^1024 is no number: half of it, twice
        return rows * 2.0**-1000, 2.0**1000
    if exponent < -1000:
        return rows * 2.0**1000, 2.0**-1000
    return rows * 2.0**-exponent, 2.0**exponent


def _lost(rows: Tensor) -> float:
    """Squares below 2^-1022 may be lost."""
    return math.sqrt(rows.shape[1]) * 2.0**-509
