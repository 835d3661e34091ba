"""Losses that ask for a margin: a certificate of radius r needs scores that differ by at least sqrt(2) r."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from onelip.losses.checks import Loss, Reduction, check_scores, reduced
from onelip.protocol import RADII

PAPER_RADIUS = RADII[0]
"""Radius at which the comparison paper certifies; its networks are trained for twice that."""


class OffsetCrossEntropy(Loss):
    """temperature * cross_entropy((scores - offset * one_hot(labels)) / temperature), averaged over the batch.

    The offset is taken from the score of the right class, which therefore has to lead by that much before
    the loss gets small; the temperature says how sharply it does. Prach, Lampert: "Almost-Orthogonal Layers
    for Efficient General-Purpose Lipschitz Networks" (2022). The defaults are those of the comparison paper:
    offset 2 sqrt(2) 36/255, temperature 1/4.

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch, onelip
        >>> scores = torch.tensor([[0.0, 2.0], [0.0, 0.1]])
        >>> loss = onelip.OffsetCrossEntropy()
        >>> bool(loss(scores[:1], torch.tensor([1])) < loss(scores[1:], torch.tensor([1])))  # the lead counts
        True
    """

    may_be_zero = frozenset({"offset"})

    def __init__(
        self,
        offset: float = 2 * math.sqrt(2) * PAPER_RADIUS,
        temperature: float = 1 / 4,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, offset=offset, temperature=temperature)
        self.offset, self.temperature = offset, temperature

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of scores (batch, classes) and integer labels (batch,)."""
        check_scores(scores, labels)
        offsets = self.offset * F.one_hot(labels, scores.shape[1])
        return self.temperature * F.cross_entropy(
            (scores - offsets) / self.temperature, labels, reduction=self.reduction
        )


class MultiMargin(Loss):
    """Mean over the batch of sum_{i != y} max(0, margin - (scores_y - scores_i)): the multi-class hinge loss.

    It is exactly zero once the right class leads every other one by the margin. The default margin is that
    of `OffsetCrossEntropy`. (`nn.MultiMarginLoss` also divides by the number of classes.)

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch, onelip
        >>> onelip.MultiMargin(margin=1.0)(torch.tensor([[0.0, 2.0, 1.5]]), torch.tensor([1]))
        tensor(0.5000)
    """

    def __init__(self, margin: float = 2 * math.sqrt(2) * PAPER_RADIUS, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction, margin=margin)
        self.margin = margin

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of scores (batch, classes) and integer labels (batch,)."""
        check_scores(scores, labels)
        lead = scores.gather(1, labels[:, None]) - scores
        others = 1 - F.one_hot(labels, scores.shape[1])
        return reduced((F.relu(self.margin - lead) * others).sum(1), self.reduction)
