"""Results that the paper printed, as package data: to compare with, never to stand in for a measurement.

The tables of the paper are typed rows, read from the CSV files beside this one.

Numbers are as printed: accuracies in per cent with one decimal, a missing entry is None. `method` has the
paper's spelling ("Cayley"); `key` is how the rest of onelip calls it ("cayley").

The paper's score of a method over several data sets.

A model is a method at one size. Within each data set the models are ranked by one value (certified accuracy in
the paper), and

    score(method) = sum over data sets of  #models at rank 1  +  #models in the top 3  +  #models in the top 10,

so that a first place counts three times, a second or third twice, a fourth to tenth once.

Ties: the rank of a model is 1 + the number of models that are strictly better ("1, 2, 2, 4"). Equal models
have equal ranks, no order of rows or alphabet decides, and a tie at the border lets more than three or ten
in. In the published 24 h tables no tie touches a border (19.7 % at ranks 9 and 10 of Tiny ImageNet is the only
one in a top 10), so the counts of the paper's text come out under any rule.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, TypeVar

from onelip.errors import InvalidInputError


@dataclass(frozen=True)
class PublishedRow:
    """What the rows of all tables have in common."""

    method: str

    @property
    def key(self) -> str:
        """The method's name in onelip."""
        return self.method.lower()


@dataclass(frozen=True)
class PublishedResult(PublishedRow):
    """One trained model: accuracy and certified accuracy at radius 36/255 on the test set, in per cent."""

    dataset: str
    kernel_size: int
    size: str
    learning_rate: float
    weight_decay: float
    train_hours: int
    accuracy: float
    certified_accuracy_36: float

    @property
    def failed(self) -> bool:
        """Whether training broke down: the paper prints such models (numerical errors of CPL and SLL) with the
        accuracy of guessing and nothing certified. They tell about stability, not about accuracy."""
        return self.certified_accuracy_36 == 0.0


@dataclass(frozen=True)
class PublishedEpoch(PublishedRow):
    """One epoch of one of the paper's 24-hour runs on CIFAR-10, from the logs in its public repository.

    Loss and accuracies are those that the run logged after the epoch, as fractions; images per second are those of
    its GPU. `epochs` is the length of the run, whose schedule moves once per epoch.
    """

    size: str
    epochs: int
    lr: float
    weight_decay: float
    epoch: int
    train_loss: float
    train_accuracy: float
    test_accuracy: float
    certified_36: float
    certified_72: float
    certified_108: float
    certified_255: float
    train_images_per_second: float
    test_images_per_second: float


@dataclass(frozen=True)
class PublishedEpochs(PublishedRow):
    """Epochs that fit in two hours of training on the paper's GPU; "cifar" stands for both CIFAR sets."""

    dataset: str
    size: str
    epochs: int | None


@dataclass(frozen=True)
class PublishedModel(PublishedRow):
    """A model of the literature on CIFAR-10, in per cent; radii are in units of 1/255."""

    model: str
    clean_accuracy: float
    certified_36: float
    certified_72: float | None
    certified_108: float | None
    certified_255: float | None
    parameters_millions: float


_Row = TypeVar("_Row", bound=PublishedRow)


def published_results() -> tuple[PublishedResult, ...]:
    """All trained models of the paper: three data sets, four sizes, 2, 10 and 24 hours."""
    return _read("results.csv", PublishedResult)


def published_curves() -> tuple[PublishedEpoch, ...]:
    """About fifty epochs, most of them early ones, of 21 runs: seven methods at XS, S and M."""
    return _read("curves.csv", PublishedEpoch)


@dataclass(frozen=True)
class PublishedSpeed:
    """Images per second of training and of evaluation, on the paper's GPU and with its data loading."""

    training: float
    inference: float


@functools.cache
def published_speeds() -> dict[tuple[str, str], PublishedSpeed]:
    """(method, size) to the medians over the epochs that are known of its 24-hour run on CIFAR-10."""
    runs: dict[tuple[str, str], list[PublishedEpoch]] = defaultdict(list)
    for row in published_curves():
        runs[row.key, row.size].append(row)
    return {
        network: PublishedSpeed(
            statistics.median(row.train_images_per_second for row in rows),
            statistics.median(row.test_images_per_second for row in rows),
        )
        for network, rows in runs.items()
    }


@functools.cache
def published_rates(dataset: str, kernel_size: int, method: str, size: str | None) -> dict[str, float] | None:
    """`lr` and `weight_decay` that the paper's search chose; None where it trained no such network."""
    for row in published_results():
        if (row.dataset, row.kernel_size, row.key, row.size) == (dataset, kernel_size, method, size):
            return {"lr": row.learning_rate, "weight_decay": row.weight_decay}
    return None


def published_epochs() -> tuple[PublishedEpochs, ...]:
    """The paper's table of epochs within a two-hour budget."""
    return _read("epochs_in_2h.csv", PublishedEpochs)


def published_state_of_the_art() -> tuple[PublishedModel, ...]:
    """CIFAR-10 results of the methods' own papers, as listed in the paper's appendix."""
    return _read("sota_cifar10.csv", PublishedModel)


def published_later() -> tuple[PublishedModel, ...]:
    """CIFAR-10 results after the paper, as their public repositories state them."""
    return _read("later_cifar10.csv", PublishedModel)


def published_ranking(rows: Iterable[PublishedResult]) -> list[MethodScore]:
    """The paper's score of each method, from the rows of one kernel size and budget."""
    return score_methods(RankingEntry(row.dataset, row.method, row.size, row.certified_accuracy_36) for row in rows)


@functools.cache
def predicted_training_memory(place: Literal["cpu", "gpu"]) -> dict[tuple[str, str, int], int]:
    """(method, size, image size) to the peak of live tensors in training at batch 256, in bytes, on CPUs or GPUs.

    It says what fits a card before anything was measured. The file is made from records, never by hand:

        for device in cpu cuda; do onelip measure memory --predict --device $device --runs-dir /tmp/predicted \\
            --sizes XS S M L --datasets cifar10 tiny-imagenet; done
        python benchmarks/predicted_memory.py /tmp/predicted
    """
    rows = _lines("predicted_training_memory.csv")
    return {(row["method"], row["size"], int(row["image_size"])): int(row[f"{place}_bytes"]) for row in rows}


_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "int | None": lambda text: int(text) if text else None,
    "float | None": lambda text: float(text) if text else None,
}


@functools.cache
def _read(name: str, row_type: type[_Row]) -> tuple[_Row, ...]:
    # Annotations are strings (`from __future__ import annotations`), which is what names the converters.
    converters = {field.name: _CONVERTERS[str(field.type)] for field in dataclasses.fields(row_type)}
    return tuple(
        row_type(**{column: converters[column](cell) for column, cell in line.items()}) for line in _lines(name)
    )


def _lines(name: str) -> csv.DictReader[str]:
    return csv.DictReader(resources.files("onelip.bench.paper").joinpath(name).read_text("utf-8").splitlines())


@dataclass(frozen=True)
class RankingEntry:
    """Value of one model on one data set; higher is better."""

    dataset: str
    method: str
    size: str
    value: float


@dataclass(frozen=True)
class MethodScore:
    """How often the models of a method are first, in the top 3 and in the top 10, over all data sets."""

    method: str
    first: int
    top3: int
    top10: int

    @property
    def score(self) -> int:
        """First places count three times, places in the top 3 twice, in the top 10 once."""
        return self.first + self.top3 + self.top10


def rank_models(entries: Iterable[RankingEntry]) -> list[tuple[int, RankingEntry]]:
    """Rank the models of each data set, 1 is best; sorted by data set, rank, method, size."""
    values: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for entry in (listed := list(entries)):
        name = f"{entry.method} {entry.size} on {entry.dataset}"
        if math.isnan(entry.value):
            raise InvalidInputError(f"{name} has the value nan and no rank; leave failed models out")
        if (entry.method, entry.size) in values[entry.dataset]:
            raise InvalidInputError(f"{name} is there twice; give one value per model, such as the mean of seeds")
        values[entry.dataset][entry.method, entry.size] = entry.value
    ranked = [(1 + sum(value > entry.value for value in values[entry.dataset].values()), entry) for entry in listed]
    return sorted(ranked, key=lambda pair: (pair[1].dataset, pair[0], pair[1].method, pair[1].size))


def score_methods(entries: Iterable[RankingEntry]) -> list[MethodScore]:
    """Scores of all methods, best first (equal scores: more first places, more in the top 3, then by name)."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, entry in rank_models(entries):
        ranks[entry.method].append(rank)
    scores = [
        MethodScore(method, *(sum(rank <= limit for rank in own) for limit in (1, 3, 10)))
        for method, own in ranks.items()
    ]
    return sorted(scores, key=lambda s: (-s.score, -s.first, -s.top3, s.method))
