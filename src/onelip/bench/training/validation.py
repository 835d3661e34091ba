"""Loss, accuracy and *estimated* certified accuracy: quick enough for every epoch, but not a certificate.

The estimate takes the network for L-Lipschitz, with L = 1 as its method constructs it, and counts a correct prediction
with `margin / (sqrt(2) L) >= radius`, or with the constants of its last layer's pairs of scores in place of sqrt(2).
The certificates of `onelip evaluate` prove the constant and subtract rounding errors. A method without a guarantee has
no known constant: nothing is certified then, the estimate is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from onelip.protocol import RADII, RADIUS_NUMERATORS


@dataclass(frozen=True)
class Scores:
    """Means over a data set; `certified` by numerator of the radius over 255."""

    loss: float
    accuracy: float
    certified: dict[int, float] = field(default_factory=dict)

    def metrics(self, prefix: str) -> dict[str, float]:
        """Flat names, as records have them: `<prefix>_certified_accuracy_36` and so on."""
        values = {f"{prefix}_loss": self.loss, f"{prefix}_accuracy": self.accuracy}
        return values | {f"{prefix}_certified_accuracy_{name}": value for name, value in self.certified.items()}


@torch.no_grad()
def estimate_scores(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    loss: nn.Module,
    *,
    lipschitz: float,
    pairs: Tensor | None = None,
) -> Scores:
    """Evaluate a model in evaluation mode; afterwards it is in the mode it was in.

    Args:
        model: gives scores (batch, classes).
        batches: images and labels.
        loss: mean loss of scores and labels.
        lipschitz: constant of the model, or of what stands before its last layer; infinity where none is known.
        pairs: constants (classes, classes) of the differences of two scores; sqrt(2) for all of them by default.
    """
    was_training = model.training
    model.eval()
    total_loss, count, radii = 0.0, 0, []
    for images, labels in batches:
        scores = model(images)
        total_loss += float(loss(scores, labels)) * len(labels)
        count += len(labels)
        radii.append(_radii(scores, labels, lipschitz, pairs))
    model.train(was_training)
    all_radii = torch.cat(radii)
    shares = [float((all_radii >= radius).double().mean()) for radius in RADII]
    certified = dict(zip(RADIUS_NUMERATORS, shares, strict=True))
    return Scores(total_loss / count, float((all_radii >= 0).double().mean()), certified)


def _radii(scores: Tensor, labels: Tensor, lipschitz: float, pairs: Tensor | None) -> Tensor:
    """Smallest lead / (m L) over the other classes for correct predictions, -1 for wrong ones."""
    top, predicted = scores.max(1)
    constants = scores.new_full(scores.shape, math.sqrt(2)) if pairs is None else pairs.to(scores)[predicted]
    lead = (top[:, None] - scores) / (constants * lipschitz)
    lead.scatter_(1, predicted[:, None], math.inf)
    return torch.where(predicted == labels, lead.amin(1), -1.0)
