"""The account of live tensors against hand calculation."""

from __future__ import annotations

import torch

from onelip.bench.measurement.memory import LiveTensors


def test_a_storage_counts_while_it_lives() -> None:
    with LiveTensors() as live:
        a = torch.zeros(1000)
        assert live.current == 4000
        b = a + a
        assert live.current == 8000
        del a
        assert live.current == 4000
        del b
        assert live.current == 0
        assert live.peak == 8000


def test_views_and_in_place_writes_count_nothing() -> None:
    with LiveTensors() as live:
        a = torch.zeros(10, 100, dtype=torch.float64)
        views = [a.T, a[3:], a.reshape(-1), a.add_(1)]
        assert live.current == live.peak == 8000
        del a
        assert live.current == 8000, "the views keep the storage"
        views.clear()
        assert live.current == 0


def test_earlier_tensors_count_when_added_or_used() -> None:
    added, used, unknown = torch.zeros(10), torch.zeros(20), torch.zeros(40)
    with LiveTensors() as live:
        live.add([added, added[2:], [used[:3]]])
        assert live.current == 40 + 80
        torch.sum(unknown)
        assert live.current == 40 + 80 + 160


def test_autograd_keeps_what_it_saves() -> None:
    with LiveTensors() as live:
        x = torch.ones(1000, requires_grad=True)
        y = x.exp()  # saves its result
        z = y * 2  # saves nothing but the number
        del y
        assert live.current == 3 * 4000
        z.sum().backward()
        del z
        assert live.current == 2 * 4000, "x and its gradient"


def test_reset_peak_starts_from_the_present() -> None:
    with LiveTensors() as live:
        a = torch.zeros(1000)
        del a
        kept = torch.zeros(10)
        live.reset_peak()
        assert live.peak == 40 == kept.untyped_storage().nbytes()
