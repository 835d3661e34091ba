"""The paper's score of a method over several data sets.

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

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from onelip.errors import InvalidInputError


@dataclass(frozen=True)
class RankingEntry:
    """Value of one model on one data set; higher is better."""

    dataset: str
    method: str
    size: str
    value: float


@dataclass(frozen=True)
class RankedEntry:
    """An entry and its rank (1 is best) within its data set."""

    entry: RankingEntry
    rank: int


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


def rank_models(entries: Iterable[RankingEntry]) -> list[RankedEntry]:
    """Rank the models of each data set; sorted by data set, rank, method, size."""
    values: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for entry in (listed := list(entries)):
        name = f"{entry.method} {entry.size} on {entry.dataset}"
        if math.isnan(entry.value):
            raise InvalidInputError(f"{name} has the value nan and no rank; leave failed models out")
        if (entry.method, entry.size) in values[entry.dataset]:
            raise InvalidInputError(f"{name} is there twice; give one value per model, such as the mean of seeds")
        values[entry.dataset][entry.method, entry.size] = entry.value
    ranked = [RankedEntry(e, 1 + sum(value > e.value for value in values[e.dataset].values())) for e in listed]
    return sorted(ranked, key=lambda r: (r.entry.dataset, r.rank, r.entry.method, r.entry.size))


def score_methods(entries: Iterable[RankingEntry]) -> list[MethodScore]:
    """Scores of all methods, best first (equal scores: more first places, more in the top 3, then by name)."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for ranked in rank_models(entries):
        ranks[ranked.entry.method].append(ranked.rank)
    scores = [
        MethodScore(method, *(sum(rank <= limit for rank in own) for limit in (1, 3, 10)))
        for method, own in ranks.items()
    ]
    return sorted(scores, key=lambda s: (-s.score, -s.first, -s.top3, s.method))
