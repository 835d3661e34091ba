"""Whatever changes a tensor is seen, whether it leaves a trace or not."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from onelip.layers import AOLConv2d
from onelip.layers.snapshot import Snapshot


def test_storages_that_are_freed_and_used_again() -> None:
    """Two assignments of `.data` in a row: the second often gets the address that the first had."""
    layer, x = AOLConv2d(4, 4, 3).eval(), torch.randn(1, 4, 4, 4)
    for _ in range(50):
        layer(x)
        layer.weight.data = torch.randn_like(layer.weight)
        layer.weight.data = torch.randn_like(layer.weight)
        assert torch.equal(layer(x), copy.deepcopy(layer)(x))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_traces_are_seen_on_every_device(device: str) -> None:
    weight = nn.Parameter(torch.ones(4, 4, device=device))
    snapshot = Snapshot([weight])
    assert snapshot.is_current()
    weight.data = weight.data.t()
    assert not snapshot.is_current()
    snapshot = Snapshot([weight])
    with torch.no_grad():
        weight.add_(1)
    assert not snapshot.is_current()


def test_contents_are_compared_bit_by_bit() -> None:
    weight = nn.Parameter(torch.tensor([0.0, float("nan"), 1.0]))
    snapshot = Snapshot([weight])
    assert snapshot.is_current()
    weight.detach().numpy()[0] = -0.0
    assert not snapshot.is_current()


def test_other_modes_do_not_disturb_the_comparison() -> None:
    weight = nn.Parameter(torch.ones(3))
    snapshot = Snapshot([weight])
    with FakeTensorMode(), torch.inference_mode():
        assert snapshot.is_current()
    weight.data.mul_(2)
    with FakeTensorMode():
        assert not snapshot.is_current()
