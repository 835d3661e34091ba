"""Losses that ask for a margin: a certificate of radius r needs scores that differ by at least sqrt(2) r."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from onelip.losses.checks import check_number, check_scores
from onelip.protocol import RADII

PAPER_RADIUS = RADII[0]
"""Radius at which the comparison paper certifies; its networks are trained for twice that."""


class OffsetCrossEntropy(nn.Module):
    """temperature * cross_entropy((scores - offset * one_hot(labels)) / temperature), averaged over the batch.

    The offset is taken from the score of the right class, which therefore has to lead by that much before
    the loss gets small; the temperature says how sharply it does. Prach, Lampert: "Almost-Orthogonal Layers
    for Efficient General-Purpose Lipschitz Networks" (2022). The defaults are those of the comparison paper:
    offset 2 sqrt(2) 36/255, temperature 1/4.
    """

    def __init__(self, offset: float = 2 * math.sqrt(2) * PAPER_RADIUS, temperature: float = 1 / 4) -> None:
        super().__init__()
        check_number(self, "offset", offset)
        check_number(self, "temperature", temperature, above=0.0)
        self.offset, self.temperature = offset, temperature

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of scores (batch, classes) and integer labels (batch,)."""
        check_scores(scores, labels)
        offsets = self.offset * F.one_hot(labels, scores.shape[1])
        return self.temperature * F.cross_entropy((scores - offsets) / self.temperature, labels)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"offset={self.offset}, temperature={self.temperature}"


class MultiMargin(nn.Module):
    """Mean over the batch of sum_{i != y} max(0, margin - (scores_y - scores_i)): the multi-class hinge loss.

    It is exactly zero once the right class leads every other one by the margin. The default margin is that
    of `OffsetCrossEntropy`. (`nn.MultiMarginLoss` also divides by the number of classes.)
    """

    def __init__(self, margin: float = 2 * math.sqrt(2) * PAPER_RADIUS) -> None:
        super().__init__()
        check_number(self, "margin", margin, above=0.0)
        self.margin = margin

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of scores (batch, classes) and integer labels (batch,)."""
        check_scores(scores, labels)
        lead = scores.gather(1, labels[:, None]) - scores
        others = 1 - F.one_hot(labels, scores.shape[1])
        return (F.relu(self.margin - lead) * others).sum(1).mean()

    def extra_repr(self) -> str:
        """The argument."""
        return f"margin={self.margin}"
