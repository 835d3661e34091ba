"""Losses of the networks that followed the comparison paper: they raise the margin where that pays most."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.losses.checks import Loss, Reduction, check_scores, reduced
from onelip.losses.margin import PAPER_RADIUS


class EMMA(Loss):
    """Efficient margin maximisation: cross-entropy of scores from which an adversary has already taken what it can.

    With z_i = f_i - f_y the lead of class i over the right one and m_i the constant of that difference, an attack of
    radius r raises z_i by at most r m_i. The loss is

        cross_entropy(z_i + r_i m_i),   r_i = radius * clip(-z_i / (radius m_i), 0.01, 1), not differentiated:

    a class is charged with the radius that it has, so that an example with a thin margin, or a wrong one, gets nearly
    plain cross-entropy and scores need not shrink first. Hu, Zou, Wang, Leino, Fredrikson: "Unlocking deterministic
    robustness certification on ImageNet" (2023).

    Args:
        radius: the radius that training aims at.
        constant: m_i for all pairs where `forward` gets none: sqrt(2) for scores of a 1-Lipschitz network.
        temperature: cross-entropy of the scores divided by it, times it.

    `progress` is the share of training done. The radius rises from 0 to its full value over the first half; a loop
    that never sets it trains with the full radius.

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch
        >>> from onelip.losses import EMMA
        >>> EMMA()(torch.randn(8, 3), torch.arange(8) % 3).shape
        torch.Size([])
    """

    def __init__(
        self,
        radius: float = PAPER_RADIUS,
        constant: float = math.sqrt(2),
        temperature: float = 1.0,
        *,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction, radius=radius, constant=constant, temperature=temperature)
        self.radius, self.constant, self.temperature = radius, constant, temperature
        self.progress = 1.0

    def forward(self, scores: Tensor, labels: Tensor, constants: Tensor | None = None) -> Tensor:
        """The loss of scores (batch, classes) and labels (batch,).

        `constants` (classes, classes) holds the constant of every difference of two scores, for a head with rows of
        its own: ||w_i - w_j|| times the constant of the network before it.
        """
        check_scores(scores, labels)
        lead = scores - scores.gather(1, labels[:, None])
        pairs = scores.new_full(scores.shape, self.constant) if constants is None else constants[labels].to(scores)
        pairs = pairs.masked_fill(F.one_hot(labels, scores.shape[1]).bool(), 0.0)
        full = self.radius * min(1.0, 2 * max(0.0, self.progress)) * pairs
        charged = full * (-lead.detach() / full.clamp_min(torch.finfo(full.dtype).tiny)).clamp(0.01, 1.0)
        return self.temperature * F.cross_entropy((lead + charged) / self.temperature, labels, reduction=self.reduction)


class LogitAnnealing(Loss):
    """-T (1 - p)^beta log p with p the softmax of the right class of (scores - offset * one_hot(labels)) / T.

    The factor (1 - p)^beta takes the weight from examples whose margin is large already: the capacity of a Lipschitz
    network is better spent on the others. Lai et al.: "Enhancing certified robustness via block reflector orthogonal
    layers and logit annealing loss" (2025); defaults are those of its networks. T is the `temperature`.

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch
        >>> from onelip.losses import LogitAnnealing
        >>> LogitAnnealing()(torch.randn(8, 3), torch.arange(8) % 3).shape
        torch.Size([])
    """

    may_be_zero = frozenset({"offset", "beta"})

    def __init__(
        self, offset: float = 2.0, temperature: float = 0.75, beta: float = 5.0, *, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction, offset=offset, temperature=temperature, beta=beta)
        self.offset, self.temperature, self.beta = offset, temperature, beta

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of scores (batch, classes) and labels (batch,)."""
        check_scores(scores, labels)
        offsets = self.offset * F.one_hot(labels, scores.shape[1])
        surprise = F.cross_entropy((scores - offsets) / self.temperature, labels, reduction="none")  # -log p
        missing = -torch.expm1(-surprise)  # 1 - p, without cancellation where p is nearly 1
        return self.temperature * reduced(missing**self.beta * surprise, self.reduction)


class CertificateRegularised(Loss):
    """cross_entropy - gamma * mean of the certified radius max(0, f_y - max_{i != y} f_i) / constant.

    Singla, Singla, Feizi: "Improved deterministic l2 robustness on CIFAR-10 and CIFAR-100" (2022).

    `reduction` is "mean", "sum" or "none", as in torch's losses.

    Examples:
        >>> import torch
        >>> from onelip.losses import CertificateRegularised
        >>> CertificateRegularised()(torch.randn(8, 3), torch.arange(8) % 3).shape
        torch.Size([])
    """

    may_be_zero = frozenset({"gamma"})

    def __init__(self, gamma: float = 0.5, constant: float = math.sqrt(2), *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction, gamma=gamma, constant=constant)
        self.gamma, self.constant = gamma, constant

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The loss of scores (batch, classes) and labels (batch,)."""
        check_scores(scores, labels)
        right = F.one_hot(labels, scores.shape[1]).bool()
        lead = scores.gather(1, labels[:, None]).squeeze(1) - scores.masked_fill(right, -math.inf).amax(1)
        plain = F.cross_entropy(scores, labels, reduction=self.reduction)
        return plain - self.gamma * reduced(F.relu(lead) / self.constant, self.reduction)
