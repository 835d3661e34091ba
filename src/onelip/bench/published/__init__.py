"""Results that the paper printed, as package data: to compare with, never to stand in for a measurement."""

from onelip.bench.published.tables import (
    PublishedEpoch,
    PublishedEpochs,
    PublishedModel,
    PublishedResult,
    PublishedRow,
    PublishedSpeed,
    published_curves,
    published_epochs,
    published_later,
    published_ranking,
    published_rates,
    published_results,
    published_speeds,
    published_state_of_the_art,
)

__all__ = [
    "PublishedEpoch",
    "PublishedEpochs",
    "PublishedModel",
    "PublishedResult",
    "PublishedRow",
    "PublishedSpeed",
    "published_curves",
    "published_epochs",
    "published_later",
    "published_ranking",
    "published_rates",
    "published_results",
    "published_speeds",
    "published_state_of_the_art",
]
