"""Shortlists on the published tables, against a count by hand."""

from __future__ import annotations

import pytest

from onelip.bench.published import PublishedResult
from onelip.bench.study.shortlist import SHORTLISTS, try_shortlist


def _row(method: str, hours: int, certified: float) -> PublishedResult:
    return PublishedResult(method, "d", 3, "XS", 0.1, 0.0, hours, 70.0, certified)


def test_a_late_method_is_lost_by_a_short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """E is the last of five after 2 hours and the first after 24."""
    early = [_row(method, hours, 50.0 - rank) for hours in (2, 10, 24) for rank, method in enumerate("ABCD")]
    late = [_row("E", 2, 10.0), _row("E", 10, 20.0), _row("E", 24, 90.0)]
    monkeypatch.setattr("onelip.bench.study.shortlist.published_results", lambda: tuple(early + late))
    kept, lost = try_shortlist({10: 5, 24: 5}), try_shortlist({10: 4, 24: 3})
    assert (kept.same_best, kept.hours, kept.full_hours, kept.comparisons) == (1.0, 180, 180, 1)
    assert (lost.same_best, lost.hours) == (0.0, 2 * 5 + 10 * 4 + 24 * 3)


def test_longer_lists_cost_more_and_find_more() -> None:
    tried = [try_shortlist(one) for one in SHORTLISTS]
    assert [one.hours for one in tried] == sorted((one.hours for one in tried), reverse=True)
    assert [one.same_best for one in tried] == sorted((one.same_best for one in tried), reverse=True)
    assert try_shortlist({10: 100, 24: 100}).same_best == 1.0
    assert try_shortlist(SHORTLISTS[0], noise=0.5, repetitions=5) == try_shortlist(SHORTLISTS[0], 0.5, 5)
