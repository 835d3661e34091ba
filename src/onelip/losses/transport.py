"""Losses from optimal transport: the Kantorovich-Rubinstein dual, alone and with a hinge.

The Wasserstein-1 distance of two distributions is the largest value of E_P f - E_Q f over 1-Lipschitz f, so a
1-Lipschitz network that maximises it on samples is a critic whose value is a distance.
"""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.losses.checks import Loss, Reduction, check_scores, check_tensor, reduced


class KR(Loss):
    """Minus the Kantorovich-Rubinstein estimate: mean f over label 0 minus mean f over label 1, to be minimised.

    `forward(...).neg()` is the estimate of the Wasserstein-1 distance itself.

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch
        >>> from onelip.losses import KR
        >>> KR()(torch.tensor([[3.0], [5.0], [1.0]]), torch.tensor([0, 0, 1]))
        tensor(3.)
    """

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        """Values (batch,) or (batch, 1) of the critic and labels (batch,) that are 1 (or True) and 0 (or -1)."""
        flat, positive = _binary(values, labels)
        return reduced(-_shares(flat, positive), self.reduction)


class _HingedTransport(Loss):
    """Hinge of a margin and transport term, weighed by alpha and 1 - alpha."""

    may_be_zero = frozenset({"alpha"})

    def __init__(self, alpha: float = 0.9, margin: float = 1.0, *, reduction: Reduction = "mean") -> None:
        if not (isinstance(alpha, Real) and 0 <= alpha <= 1):
            raise InvalidInputError(f"{type(self).__name__}: alpha={alpha!r} must be in [0, 1]")
        super().__init__(reduction, alpha=alpha, margin=margin)
        self.alpha, self.margin = alpha, margin

    def _loss(self, values: Tensor, positive: Tensor) -> Tensor:
        hinge = F.relu(self.margin - torch.where(positive, values, -values))
        each = hinge if hinge.dim() == 1 else hinge.mean(1)
        return reduced(self.alpha * each - (1 - self.alpha) * _shares(values, positive), self.reduction)


class HKR(_HingedTransport):
    """alpha * mean(max(0, margin - s f)) - (1 - alpha) * (mean of f over s = 1 minus mean of f over s = -1).

    A binary classifier, s = ±1, that separates as an optimal transport does; alpha weighs the hinge. Serrurier et al.:
    "Achieving robustness in classification using optimal transport with hinge regularization" (2021).

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch
        >>> from onelip.losses import HKR
        >>> scores, labels = torch.tensor([[2.0], [-2.0]]), torch.tensor([1, 0])
        >>> bool(HKR(alpha=1.0)(scores, labels) != HKR(alpha=0.5)(scores, labels))
        True
    """

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        """Values (batch,) or (batch, 1) and labels (batch,) that are 1 (or True) and 0 (or -1)."""
        return self._loss(*_binary(values, labels))


class HKRMulticlass(_HingedTransport):
    """HKR of every class against the rest, averaged over the classes; one score per class.

    A class that the batch has no example of, or nothing else, adds nothing to the transport term. `alpha` weighs the
    hinge of this `margin`, as in HKR.

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch
        >>> from onelip.losses import HKRMulticlass
        >>> HKRMulticlass()(torch.randn(8, 3), torch.arange(8) % 3).shape
        torch.Size([])
    """

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of scores (batch, classes) and labels (batch,)."""
        check_scores(scores, labels)
        return self._loss(scores, F.one_hot(labels, scores.shape[1]).bool())


class SoftHKRMulticlass(_HingedTransport):
    """HKR of the right score against the others, which count by the softmax weights w_i of t f_i over i != y:

        alpha (max(0, margin - f_y) + sum_i w_i max(0, margin + f_i)) - (1 - alpha) (f_y - sum_i w_i f_i),

    averaged over the batch. The strongest rivals count most, where `HKRMulticlass` gives all classes the same weight.
    t is the `temperature` divided by max(1, mean |f| / margin) of the batch, so that growing scores do not make the
    weights one-hot. Serrurier et al.: "On the explainable properties of 1-Lipschitz neural networks" (2023).

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch
        >>> from onelip.losses import SoftHKRMulticlass
        >>> SoftHKRMulticlass()(torch.randn(8, 3), torch.arange(8) % 3).shape
        torch.Size([])
    """

    def __init__(
        self, alpha: float = 0.9, margin: float = 1.0, temperature: float = 1.0, *, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(alpha, margin, reduction=reduction)
        self._check_numbers(temperature=temperature)
        self.temperature = temperature

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of scores (batch, classes) and labels (batch,)."""
        right, others = _right_and_others(scores, labels)
        sharpness = self.temperature / (scores.detach().abs().mean() / self.margin).clamp_min(1.0)
        weights = torch.softmax(sharpness * others, 1)  # 0 for the right class
        hinge = F.relu(self.margin - right) + (weights * F.relu(self.margin + scores)).sum(1)
        lead = right - (weights * scores).sum(1)
        return reduced(self.alpha * hinge - (1 - self.alpha) * lead, self.reduction)


class LseHKRMulticlass(_HingedTransport):
    """HKR of the right score against o, a smooth maximum of the others:

        alpha (max(0, margin - f_y) + max(0, margin + o)) - (1 - alpha) (f_y - o),   o = log(sum_i exp(t f_i)) / t,

    over i != y, averaged over the batch. With t = log(classes - 1) / (slack * margin), o exceeds the largest of them by
    at most slack * margin. alpha=0 leaves the transport term alone.

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch
        >>> from onelip.losses import LseHKRMulticlass
        >>> LseHKRMulticlass()(torch.randn(8, 3), torch.arange(8) % 3).shape
        torch.Size([])
    """

    def __init__(
        self, alpha: float = 0.9, margin: float = 1.0, slack: float = 1.0, *, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(alpha, margin, reduction=reduction)
        self._check_numbers(slack=slack)
        self.slack = slack

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of scores (batch, classes) and labels (batch,)."""
        right, others = _right_and_others(scores, labels)
        # A single rival is its own maximum, with any t.
        sharpness = (math.log(scores.shape[1] - 1) or 1.0) / (self.slack * self.margin)
        rival = torch.logsumexp(sharpness * others, 1) / sharpness
        hinge = F.relu(self.margin - right) + F.relu(self.margin + rival)
        return reduced(self.alpha * hinge - (1 - self.alpha) * (right - rival), self.reduction)


def _right_and_others(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of the right classes (batch,), and all scores with minus infinity in the places of those."""
    check_scores(scores, labels)
    return scores.gather(1, labels[:, None]).squeeze(1), scores.scatter(1, labels[:, None], -math.inf)


def _shares(values: Tensor, positive: Tensor) -> Tensor:
    """What each sample adds, times the batch, to the mean over positive minus the mean over the others.

    Nothing where one side is empty. For scores (batch, classes) the mean over the classes.
    """
    ups, downs = positive.sum(0), (~positive).sum(0)
    each = values * positive / ups.clamp_min(1) - values * ~positive / downs.clamp_min(1)
    shares = torch.where((ups > 0) & (downs > 0), len(values) * each, 0.0)
    return shares if shares.dim() == 1 else shares.mean(1)


def _binary(values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    check_tensor("values", values)
    check_tensor("labels", labels)
    flat = values.squeeze(-1) if values.dim() == 2 and values.shape[1] == 1 else values
    if flat.dim() != 1 or labels.shape != flat.shape:
        raise InvalidInputError(
            f"expected values (batch,) or (batch, 1) and labels (batch,), got {tuple(values.shape)} and "
            f"{tuple(labels.shape)}"
        )
    return flat, labels > 0
