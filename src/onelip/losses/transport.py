"""Losses from optimal transport: the Kantorovich-Rubinstein dual, alone and with a hinge.

The Wasserstein-1 distance of two distributions is the largest value of E_P f - E_Q f over 1-Lipschitz f, so a
1-Lipschitz network that maximises it on samples is a critic whose value is a distance.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.losses.checks import check_number, check_scores, check_tensor


class KR(nn.Module):
    """Minus the Kantorovich-Rubinstein estimate: mean f over label 0 minus mean f over label 1, to be minimised.

    `forward(...).neg()` is the estimate of the Wasserstein-1 distance itself.
    """

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        """Values (batch,) or (batch, 1) of the critic and labels (batch,) that are 1 (or True) and 0 (or -1)."""
        flat, positive = _binary(values, labels)
        return -_mean_difference(flat, positive)


class _HingedTransport(nn.Module):
    """Hinge of a margin and transport term, weighed by alpha and 1 - alpha."""

    def __init__(self, alpha: float = 0.9, margin: float = 1.0) -> None:
        super().__init__()
        if not 0 <= alpha <= 1:
            raise InvalidInputError(f"{type(self).__name__}: alpha={alpha} must be in [0, 1]")
        check_number(self, "margin", margin, above=0.0)
        self.alpha, self.margin = alpha, margin

    def _loss(self, values: Tensor, positive: Tensor) -> Tensor:
        hinge = F.relu(self.margin - torch.where(positive, values, -values)).mean()
        return self.alpha * hinge - (1 - self.alpha) * _mean_difference(values, positive)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"alpha={self.alpha}, margin={self.margin}"


class HKR(_HingedTransport):
    """alpha * mean(max(0, margin - s f)) - (1 - alpha) * (mean of f over s = 1 minus mean of f over s = -1).

    A binary classifier, s = ±1, that separates as an optimal transport does; alpha weighs the hinge. Serrurier et al.:
    "Achieving robustness in classification using optimal transport with hinge regularization" (2021).
    """

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        """Values (batch,) or (batch, 1) and labels (batch,) that are 1 (or True) and 0 (or -1)."""
        return self._loss(*_binary(values, labels))


class HKRMulticlass(_HingedTransport):
    """HKR of every class against the rest, averaged over the classes; one score per class.

    A class that the batch has no example of, or nothing else, adds nothing to the transport term. `alpha` weighs the
    hinge of this `margin`, as in HKR.
    """

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of scores (batch, classes) and labels (batch,)."""
        check_scores(scores, labels)
        return self._loss(scores, F.one_hot(labels, scores.shape[1]).bool())


def _mean_difference(values: Tensor, positive: Tensor) -> Tensor:
    """Mean over positive minus mean over the others along the batch; 0 where one side is empty; then the mean."""
    ups, downs = positive.sum(0), (~positive).sum(0)
    difference = (values * positive).sum(0) / ups.clamp_min(1) - (values * ~positive).sum(0) / downs.clamp_min(1)
    return torch.where((ups > 0) & (downs > 0), difference, 0.0).mean()


def _binary(values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    check_tensor(labels)
    flat = values.squeeze(-1) if values.dim() == 2 and values.shape[1] == 1 else values
    if flat.dim() != 1 or labels.shape != flat.shape:
        raise InvalidInputError(
            f"expected values (batch,) or (batch, 1) and labels (batch,), got {tuple(values.shape)} and "
            f"{tuple(labels.shape)}"
        )
    return flat, labels > 0
