"""Losses for 1-Lipschitz networks.

    OffsetCrossEntropy, MultiMargin                 a margin between the right class and the others: the paper's
    EMMA, LogitAnnealing, CertificateRegularised    those of the networks after the paper
    KR, HKR, HKRMulticlass                          Kantorovich-Rubinstein duality: critics and robust classifiers
    SoftHKRMulticlass, LseHKRMulticlass             the same against the strongest other classes

A certificate of radius r needs scores that differ by at least sqrt(2) r. A 1-Lipschitz network cannot reach that by
larger weights, so the loss decides which margin it learns. Every loss takes `reduction="mean"`, `"sum"` or `"none"`, as
torch's do.
"""

from __future__ import annotations

from onelip.losses.certified import EMMA, CertificateRegularised, LogitAnnealing
from onelip.losses.margin import PAPER_RADIUS, MultiMargin, OffsetCrossEntropy
from onelip.losses.transport import HKR, KR, HKRMulticlass, LseHKRMulticlass, SoftHKRMulticlass

HKRLoss, HKRMulticlassLoss, NegKRLoss = HKR, HKRMulticlass, KR
SoftHKRMulticlassLoss, LseHKRMulticlassLoss = SoftHKRMulticlass, LseHKRMulticlass
"""Names that deel-torchlip has for them."""

__all__ = [
    "EMMA",
    "HKR",
    "KR",
    "PAPER_RADIUS",
    "CertificateRegularised",
    "HKRLoss",
    "HKRMulticlass",
    "HKRMulticlassLoss",
    "LogitAnnealing",
    "LseHKRMulticlass",
    "LseHKRMulticlassLoss",
    "MultiMargin",
    "NegKRLoss",
    "OffsetCrossEntropy",
    "SoftHKRMulticlass",
    "SoftHKRMulticlassLoss",
]
