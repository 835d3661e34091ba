"""Losses that ask for a margin: a certificate of radius r needs scores that differ by at least sqrt(2) r."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError

PAPER_RADIUS = 36 / 255
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
        if not (math.isfinite(offset) and offset >= 0):
            raise InvalidInputError(f"OffsetCrossEntropy: offset={offset} must be a number of at least 0")
        if not (math.isfinite(temperature) and temperature > 0):
            raise InvalidInputError(f"OffsetCrossEntropy: temperature={temperature} must be a number above 0")
        self.offset, self.temperature = offset, temperature

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of scores (batch, classes) and integer labels (batch,)."""
        _check_shapes(scores, labels)
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
        if not (math.isfinite(margin) and margin > 0):
            raise InvalidInputError(f"MultiMargin: margin={margin} must be a number above 0")
        self.margin = margin

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of scores (batch, classes) and integer labels (batch,)."""
        _check_shapes(scores, labels)
        lead = scores.gather(1, labels[:, None]) - scores
        others = 1 - F.one_hot(labels, scores.shape[1])
        return (F.relu(self.margin - lead) * others).sum(1).mean()

    def extra_repr(self) -> str:
        """The argument."""
        return f"margin={self.margin}"


def _check_shapes(scores: Tensor, labels: Tensor) -> None:
    """Only what needs no look at the data: label values are checked by the operations that use them."""
    if scores.dim() != 2 or labels.shape != scores.shape[:1]:
        raise InvalidInputError(
            f"expected scores (batch, classes) and labels (batch,), got {tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    if labels.dtype != torch.int64:
        raise InvalidInputError(f"labels must be class numbers of type torch.int64, got {labels.dtype}")
