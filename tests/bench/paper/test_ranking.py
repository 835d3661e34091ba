from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onelip.bench.paper.published import (
    MethodScore,
    RankingEntry,
    published_ranking,
    published_results,
    rank_models,
    score_methods,
)
from onelip.errors import InvalidInputError


def _entries(dataset: str, values: dict[str, float]) -> list[RankingEntry]:
    return [RankingEntry(dataset, *name.split(), value=value) for name, value in values.items()]


def _published_24h() -> dict[str, MethodScore]:
    rows = [row for row in published_results() if row.kernel_size == 3 and row.train_hours == 24]
    return {score.method: score for score in published_ranking(rows)}


def test_published_counts_are_those_of_the_papers_text() -> None:
    scores = _published_24h()
    assert (scores["SOC"].first, scores["SOC"].top3) == (2, 6)
    assert (scores["CPL"].top3, scores["CPL"].top10) == (2, 9)
    assert (scores["LOT"].first, scores["LOT"].top10) == (1, 1 + 5)
    assert scores["AOL"].top10 == 5
    assert scores["SLL"].top10 == 1
    assert scores["BCOP"].top10 == 1
    assert scores["Cayley"].score == 0
    assert [score.score for score in scores.values()] == [16, 11, 8, 5, 1, 1, 0]


def test_lot_is_the_best_on_tiny_imagenet() -> None:
    rows = [r for r in published_results() if r.dataset == "tiny-imagenet" and r.train_hours == 24]
    ranked = rank_models(RankingEntry(r.dataset, r.method, r.size, r.certified_accuracy_36) for r in rows)
    assert (ranked[0][0], ranked[0][1].method) == (1, "LOT")
    assert ranked[1][0] == 2


def test_no_tie_touches_a_border_in_the_published_tables() -> None:
    """The claim of the module's docstring: the paper's counts do not depend on the rule for ties."""
    rows = [row for row in published_results() if row.kernel_size == 3 and row.train_hours == 24]
    ties = []
    for dataset in {row.dataset for row in rows}:
        values = sorted((r.certified_accuracy_36 for r in rows if r.dataset == dataset), reverse=True)
        assert values[0] > values[1]
        assert values[2] > values[3]
        assert values[9] > values[10]
        ties += [(dataset, i + 1) for i in range(9) if values[i] == values[i + 1]]
    assert ties == [("tiny-imagenet", 9)]


def test_first_counts_three_times_top3_twice_top10_once() -> None:
    values = {f"m{index} S": 100.0 - index for index in range(12)}
    scores = {score.method: score.score for score in score_methods(_entries("d", values))}
    assert [scores[f"m{index}"] for index in range(12)] == [3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 0, 0]


def test_scores_add_up_over_data_sets_and_sizes() -> None:
    entries = _entries("one", {"a S": 3.0, "a L": 2.0, "b S": 1.0}) + _entries("two", {"a S": 1.0, "b S": 2.0})
    assert score_methods(entries) == [MethodScore("a", 1, 3, 3), MethodScore("b", 1, 2, 2)]


def test_ties_share_the_better_rank() -> None:
    ranked = rank_models(_entries("d", {"z S": 5.0, "a S": 5.0, "m S": 4.0, "b S": 3.0, "c S": 3.0, "e S": 1.0}))
    assert [(entry.method, rank) for rank, entry in ranked] == [
        ("a", 1),
        ("z", 1),
        ("m", 3),
        ("b", 4),
        ("c", 4),
        ("e", 6),
    ]


@given(st.permutations(range(8)), st.lists(st.integers(0, 3), min_size=8, max_size=8))
def test_the_order_of_rows_does_not_matter(order: list[int], values: list[int]) -> None:
    entries = [RankingEntry("d", f"m{index % 3}", f"s{index}", float(v)) for index, v in enumerate(values)]
    assert score_methods(entries[index] for index in order) == score_methods(entries)


def test_nan_and_duplicates_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="a S on d has the value nan"):
        rank_models(_entries("d", {"a S": math.nan}))
    with pytest.raises(InvalidInputError, match="a S on d is there twice"):
        rank_models(_entries("d", {"a S": 1.0}) + _entries("d", {"a S": 2.0}))
