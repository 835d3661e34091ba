"""From scores to radii: what each pair of scores allows, with all errors subtracted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from onelip.certification.graph import Graph
from onelip.certification.heads import SQRT2, LinearHead, distances_from, find_linear_head, row_norms
from onelip.certification.rounding import ForwardError
from onelip.proofs.layer_bound import FLOAT64, Arithmetic, largest_activation
from onelip.proofs.proven import SAFETY, gamma

LARGEST_RADIUS = 2.0**20
"""Radii are cut off here: nobody asks for more, and rounding errors within larger balls would be unbounded."""

_DOWNWARDS = (1 - 2.0**-30) / SAFETY
"""Factor that covers the rounding of the radius itself and makes the inequality strict."""


@dataclass(frozen=True)
class ScoreConstants:
    """How scores depend on the input: through the rows of a linear head, else sqrt(2) times the model's constant.

    What is asked for are pairs with the predicted classes, which are few: with 20,000 classes there are 400 million.
    """

    head: LinearHead | None
    norms: Tensor
    """Of the rows of the head, (classes,)."""
    lipschitz: float
    output: int
    """Index of the node that the scores are."""

    @staticmethod
    def of(graph: Graph) -> ScoreConstants:
        """Those of the model's scores."""
        head, classes = find_linear_head(graph), graph.output.shape[0]
        norms = torch.full((classes,), SQRT2, dtype=torch.float64) if head is None else row_norms(head.rows)
        return ScoreConstants(head, norms, graph.output.lipschitz, graph.output.index)

    def distances(self, predictions: Tensor) -> Tensor:
        """Constants (batch, classes) of y_p - y_j with respect to the input of the head, or to the scores."""
        if self.head is None:
            return torch.full((len(predictions), len(self.norms)), SQRT2, dtype=torch.float64)
        return distances_from(self.head.rows, predictions, self.head.spread)

    def pairs(self, predictions: Tensor) -> Tensor:
        """Constants (batch, classes) of y_p - y_j with respect to the input of the model."""
        general = SQRT2 * self.lipschitz * SAFETY
        distances = self.distances(predictions)
        if self.head is None:
            return torch.full_like(distances, general)
        through = distances * self.head.source.lipschitz * SAFETY
        least = torch.minimum(through, torch.full_like(through, general))
        return torch.where(least.isnan(), torch.inf, least)

    def score_errors(self, forward: ForwardError, arithmetic: Arithmetic) -> Tensor:
        """Bounds (batch, classes) of what the head itself and all after it add to the error of each score."""
        assert self.head is not None
        norm = forward.norms[self.head.source.index][:, None]
        size = self.norms * norm + self.head.magnitudes
        terms = self.head.terms
        lost = 8 * terms * arithmetic.tiny * (1 + norm + self.norms.amax()) * self.head.growth
        made = gamma(terms, arithmetic.unit_roundoff) * size + lost
        return made.masked_fill(~(size * terms * self.head.growth <= largest_activation(arithmetic)), torch.inf)

    def pair_errors(self, predictions: Tensor, forward: ForwardError, arithmetic: Arithmetic) -> Tensor:
        """Bounds (batch, classes) of the error of computed y_p - y_j.

        Without a head, |e_p - e_j| <= sqrt(2) ||e||. With one, the error at its input counts by ||w_p - w_j||, and the
        two inner products add gamma (||w|| ||input|| + |b|) each. The smaller of the two counts.
        """
        plain = SQRT2 * forward.errors[self.output][:, None] * SAFETY
        if self.head is None:
            return plain.expand(-1, len(self.norms))
        carried = self.distances(predictions) * forward.errors[self.head.source.index][:, None]
        made = self.score_errors(forward, arithmetic)
        own = made.gather(1, predictions[:, None])
        found = (torch.nan_to_num(carried, nan=torch.inf) + made + own) * SAFETY
        return _smaller(found, plain)

    def errors(self, forward: ForwardError, arithmetic: Arithmetic) -> Tensor:
        """Bounds (batch, classes) of the error of each computed score."""
        plain = forward.errors[self.output][:, None].expand(-1, len(self.norms))
        if self.head is None:
            return plain
        carried = self.norms * forward.errors[self.head.source.index][:, None]
        found = (torch.nan_to_num(carried, nan=torch.inf) + self.score_errors(forward, arithmetic)) * SAFETY
        return _smaller(found, plain)


def _smaller(found: Tensor, plain: Tensor) -> Tensor:
    """The smaller of two bounds; where something may overflow between head and scores, the plain one sees it."""
    return torch.where(plain.isinf(), plain, torch.minimum(found, plain.expand_as(found)))


def certified_radii(scores: Tensor, constants: ScoreConstants, errors: Tensor) -> Tensor:
    """min_j (y_p - y_j - errors_j) / D_j over j != p, and 0 where that is not positive or anything is not finite."""
    best = scores.argmax(1, keepdim=True)
    slack = (scores.gather(1, best) - scores) * (1 - 4 * FLOAT64.unit_roundoff) - errors
    divisors = constants.pairs(best[:, 0])
    radii = torch.where(slack > 0, slack / divisors, 0.0) * _DOWNWARDS
    radii = torch.nan_to_num(radii, nan=0.0, posinf=torch.inf)
    radii = radii.scatter(1, best, torch.inf).amin(1).clamp(max=LARGEST_RADIUS)
    return torch.where(torch.isfinite(scores).all(1), radii, 0.0)


def margins(scores: Tensor) -> Tensor:
    """Best minus second-best score, 0 where scores are not finite."""
    top = scores.topk(2, dim=1).values
    return torch.where(torch.isfinite(scores).all(1), top[:, 0] - top[:, 1], 0.0)
