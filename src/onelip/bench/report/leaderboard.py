"""The leaderboard: certified accuracy on the CIFAR-10 test set against the processor time of training, from records.

Rows are finished trainings that were evaluated on all 10,000 test images, and the networks that come with onelip, whose
cards hold what their records said. Core-seconds are what the processes used, evaluation not counted. Results of the
literature stand below: trained on GPUs for hours to days, with estimates of the constant in some cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from onelip import pretrained
from onelip.bench.published import PublishedModel, published_later, published_state_of_the_art
from onelip.bench.runs import RunRecord, RunStatus
from onelip.protocol import RADIUS_NUMERATORS

_TEST_IMAGES = 10_000
_HEADER = ("core-seconds", "network", "accuracy", *(f"{radius}/255" for radius in RADIUS_NUMERATORS), "proven constant")


@dataclass(frozen=True)
class LeaderboardRow:
    """One trained network; accuracies are shares."""

    core_seconds: float
    label: str
    accuracy: float
    certified: tuple[float, ...]
    lipschitz: float

    @property
    def cells(self) -> list[str]:
        """As the table shows it, with the standard error of the share at the first radius."""
        error = math.sqrt(self.certified[0] * (1 - self.certified[0]) / _TEST_IMAGES)
        first = f"{100 * self.certified[0]:.1f} ± {100 * error:.1f}"
        rest = [f"{100 * share:.1f}" for share in self.certified[1:]]
        return [
            f"{self.core_seconds:,.0f}", self.label, f"{100 * self.accuracy:.1f}", first, *rest, f"{self.lipschitz:.6f}"
        ]  # fmt: skip


def entries_of_runs(records: Iterable[RunRecord]) -> list[LeaderboardRow]:
    """Trainings on CIFAR-10 that ended, were timed and were certified on all test images."""
    found = []
    for record in records:
        metrics = record.metrics
        if (
            record.kind != "train"
            or record.status is not RunStatus.FINISHED
            or record.network.dataset != "cifar10"
            or metrics.get("test_images") != _TEST_IMAGES
            or "core_seconds" not in metrics
        ):
            continue
        certified = tuple(metrics[f"test_certified_accuracy_{radius}"] for radius in RADIUS_NUMERATORS)
        label = f"{record.network.label}, recipe {record.config.get('recipe')}, seed {record.seed}"
        found.append(
            LeaderboardRow(
                metrics["core_seconds"], label, metrics["test_accuracy"], certified, metrics["test_lipschitz_bound"]
            )
        )
    return found


def shipped_entries() -> list[LeaderboardRow]:
    """The networks that come with onelip."""
    cards = [pretrained.card(name) for name in pretrained.names()]
    return [
        LeaderboardRow(
            card["core_seconds"],
            f"`{card['name']}`",
            card["accuracy"],
            tuple(card["certified_accuracy"][str(radius)] for radius in RADIUS_NUMERATORS),
            card["lipschitz_bound"],
        )
        for card in cards
        if card["data"] == "cifar10" and card["images"] == _TEST_IMAGES
    ]


def leaderboard_page(entries: Iterable[LeaderboardRow]) -> str:
    """The page in Markdown, quickest first, of equal times the best; of several with one label the last one counts."""
    unique = {entry.label: entry for entry in entries}
    rows = [entry.cells for entry in sorted(unique.values(), key=lambda e: (round(e.core_seconds), -e.certified[0]))]
    literature = [_published_cells(model) for model in (*published_state_of_the_art(), *published_later())]
    return "\n".join(
        [
            "# Leaderboard",
            "",
            "Certified accuracy on the CIFAR-10 test set (10,000 images, in per cent, with the standard error of the",
            "draw of images) against the processor time of training. Written by `onelip leaderboard`.",
            "",
            *_table(_HEADER, rows),
            "",
            "Results of the literature, trained on GPUs for hours to days:",
            "",
            *_table(("million parameters", *_HEADER[1:-1]), literature),
            "",
        ]
    )


def _published_cells(model: PublishedModel) -> list[str]:
    certified = (model.certified_36, model.certified_72, model.certified_108, model.certified_255)
    shares = ["" if share is None else f"{share:.1f}" for share in certified]
    return [f"{model.parameters_millions:g}", model.model, f"{model.clean_accuracy:.1f}", *shares]


def _table(header: Iterable[str], rows: Iterable[list[str]]) -> list[str]:
    names = list(header)
    lines = [names, ["---:" if index != 1 else "---" for index in range(len(names))], *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]
