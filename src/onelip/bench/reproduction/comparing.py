"""Our values beside the published ones, with a verdict by a stated tolerance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from onelip.bench.published import PublishedEpoch

TEST_IMAGES = 10_000
POINTS = 0.04
"""Difference that two seeds of one run may have in their first epochs: 4 points."""


def tolerance(share: float) -> float:
    """4 points, or 3 standard errors of a share of 10,000 test images if that is more (it is not for any share)."""
    return max(POINTS, 3 * math.sqrt(share * (1 - share) / TEST_IMAGES))


@dataclass(frozen=True)
class Comparison:
    """One run after one epoch; shares of the test images, ours proven, the published ones as logged."""

    method: str
    size: str
    epoch: int
    accuracy: float
    published_accuracy: float
    certified_36: float
    published_certified_36: float
    train_loss: float
    published_train_loss: float
    core_seconds: float

    @property
    def verdict(self) -> str:
        """within: both differences are tolerable; better: none is too low, one is higher; lower: one is too low."""
        pairs = (
            (self.accuracy, self.published_accuracy),
            (self.certified_36, self.published_certified_36),
        )
        if any(ours < theirs - tolerance(theirs) for ours, theirs in pairs):
            return "lower"
        return "better" if any(ours > theirs + tolerance(theirs) for ours, theirs in pairs) else "within"


def compare(published: PublishedEpoch, metrics: Mapping[str, float]) -> Comparison:
    """Our metrics, named as in a record, beside a published epoch."""
    return Comparison(
        method=published.key,
        size=published.size,
        epoch=published.epoch,
        accuracy=metrics["test_accuracy"],
        published_accuracy=published.test_accuracy,
        certified_36=metrics["test_certified_accuracy_36"],
        published_certified_36=published.certified_36,
        train_loss=metrics["train_loss"],
        published_train_loss=published.train_loss,
        core_seconds=metrics["core_seconds"],
    )
