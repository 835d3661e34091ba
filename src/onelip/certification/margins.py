"""From scores to radii: what each pair of scores allows, with all errors subtracted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onelip.certification.chain import Step
from onelip.certification.forward_error import ForwardError, input_constants
from onelip.certification.heads import SQRT2, LinearHead, find_linear_head, pairwise_distances, row_norms
from onelip.linalg.layer_bound import FLOAT64, Arithmetic
from onelip.linalg.proven import SAFETY, gamma

LARGEST_RADIUS = 2.0**20
"""Radii are cut off here: nobody asks for more, and rounding errors within larger balls would be unbounded."""

_DOWNWARDS = (1 - 2.0**-30) / SAFETY
"""Factor that covers the rounding of the radius itself and makes the inequality strict."""


@dataclass(frozen=True)
class ScoreConstants:
    """How scores depend on the input: pairwise Lipschitz constants, and the linear head if there is one."""

    lipschitz: Tensor
    head: LinearHead | None
    distances: Tensor
    norms: Tensor

    @staticmethod
    def of(steps: Sequence[Step]) -> ScoreConstants:
        """Through the rows of a linear head, else sqrt(2) times the constant of the model."""
        constants, head = input_constants(steps), find_linear_head(list(steps))
        classes = steps[-1].output_shape[0]
        if head is None:
            distances = torch.full((classes, classes), SQRT2, dtype=torch.float64)
            return ScoreConstants(distances * constants[-1] * SAFETY, None, distances, distances[0])
        distances = pairwise_distances(head.rows).cpu()
        lipschitz = distances * constants[head.position] * SAFETY
        return ScoreConstants(lipschitz, head, distances, row_norms(head.rows).cpu())

    def pair_errors(self, predictions: Tensor, forward: ForwardError, arithmetic: Arithmetic) -> Tensor:
        """Bounds (batch, classes) of the error of computed y_p - y_j.

        Without a head, |e_p - e_j| <= sqrt(2) ||e||. With one, the error at its input counts by ||w_p - w_j||, and the
        two inner products add gamma (||w|| ||input|| + |b|) each.
        """
        if self.head is None:
            return self.distances[predictions] * forward.errors[-1][:, None] * SAFETY
        position, bias = self.head.position, self.head.bias.cpu().abs()
        carried = self.distances[predictions] * forward.errors[position][:, None]
        terms = self.head.rows.shape[1] + 1
        norm = forward.norms[position][:, None]
        sizes = (self.norms[predictions, None] + self.norms) * norm + bias[predictions, None] + bias
        underflow = 8 * terms * arithmetic.tiny * (1 + norm + self.norms.amax())
        return (carried + gamma(terms, arithmetic.unit_roundoff) * sizes + underflow) * SAFETY


def certified_radii(scores: Tensor, constants: ScoreConstants, errors: Tensor) -> Tensor:
    """min_j (y_p - y_j - errors_j) / D_j over j != p, and 0 where that is not positive or anything is not finite."""
    best = scores.argmax(1, keepdim=True)
    slack = (scores.gather(1, best) - scores) * (1 - 4 * FLOAT64.unit_roundoff) - errors
    divisors = constants.lipschitz[best[:, 0]]
    radii = torch.where(slack > 0, slack / divisors, 0.0) * _DOWNWARDS
    radii = radii.scatter(1, best, torch.inf).amin(1).clamp(max=LARGEST_RADIUS)
    return torch.where(torch.isfinite(scores).all(1), radii, 0.0)


def margins(scores: Tensor) -> Tensor:
    """Best minus second-best score, 0 where scores are not finite."""
    top = scores.topk(2, dim=1).values
    return torch.where(torch.isfinite(scores).all(1), top[:, 0] - top[:, 1], 0.0)
