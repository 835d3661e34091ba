"""What fits into a card or this machine."""

from __future__ import annotations

import pytest

from onelip.bench.measurement.memory import CARD_OVERHEAD, GIB, available_memory, fits, smallest_card


@pytest.mark.parametrize(
    ("needed", "card"),
    [(0, 8), (7 * GIB, 8), (7 * GIB + 1, 12), (23 * GIB, 24), (39 * GIB + 1, 80), (79 * GIB, 80), (79 * GIB + 1, None)],
)
def test_smallest_card_leaves_room_for_the_overhead(needed: int, card: int | None) -> None:
    assert CARD_OVERHEAD == GIB
    assert smallest_card(needed) == card


def test_a_run_needs_room_beside_its_tensors() -> None:
    assert fits(10, 12)
    assert not fits(10, 11)
    assert 2**20 < available_memory() < 2**50
