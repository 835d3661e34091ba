"""Whatever changes a tensor is seen, whether it leaves a trace or not."""

from __future__ import annotations

import copy
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn
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


class LateAnswer:
    """An accelerator's answer: there when the test says that the device has come to it."""

    waiting: ClassVar[list[LateAnswer]] = []

    def __init__(self, answer: Tensor) -> None:
        self.answer, self.ready = bool(answer), False
        self.waiting.append(self)

    def is_ready(self) -> bool:
        return self.ready

    def value(self) -> bool:
        assert self.ready, "the host would wait"
        return self.answer


def test_accelerators_answer_later_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write without a trace is seen by the first call after the device has compared, and the layer is right then."""
    monkeypatch.setattr("onelip.layers.snapshot.answers_at_once", lambda device: False)
    monkeypatch.setattr("onelip.layers.snapshot.QueuedAnswer", LateAnswer)
    monkeypatch.setattr(LateAnswer, "waiting", [])
    layer, x = AOLConv2d(4, 4, 3).eval(), torch.randn(1, 4, 4, 4)

    def device_works() -> None:
        for answer in LateAnswer.waiting:
            answer.ready = True

    for _ in range(3):
        layer(x)
        device_works()
    before = layer(x)
    layer.weight.data.copy_(torch.randn_like(layer.weight))
    assert torch.equal(layer(x), before)  # not known yet: the comparison in flight began before the write
    assert len([answer for answer in LateAnswer.waiting if not answer.ready]) == 1  # one at a time
    device_works()
    layer(x)
    device_works()
    assert torch.equal(layer(x), copy.deepcopy(layer)(x))
    assert not torch.equal(layer(x), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_every_number_counts_in_every_layout(dtype: torch.dtype) -> None:
    """Of images whose channels lie innermost, of transposed and of expanded matrices, and of every second column."""
    images = torch.zeros(2, 3, 4, 5, dtype=dtype).contiguous(memory_format=torch.channels_last)
    expanded, columns = torch.zeros(3, 1, dtype=dtype).expand(3, 4), torch.zeros(4, 6, dtype=dtype)[:, 1::2]
    for tensor in (images, torch.zeros(3, 4, dtype=dtype).t(), expanded, columns, torch.zeros((), dtype=dtype)):
        for place in torch.ones(tensor.shape).nonzero().tolist():
            snapshot = Snapshot([torch.zeros(0, dtype=dtype), tensor])
            assert snapshot.is_current()
            tensor.data[(*place,)] = True
            assert not snapshot.is_current(), (tensor.stride(), place)
            tensor.data.zero_()


def test_memory_that_is_exchanged_below_a_storage() -> None:
    """What `share_memory_` does: same tensor, same storage, same contents, and the old memory is given back."""
    weight = nn.Parameter(torch.ones(64, 64))
    snapshot = Snapshot([weight])
    weight.data.share_memory_()
    assert not snapshot.is_current()
    snapshot = Snapshot([weight])
    assert snapshot.is_current()
    weight.data[3, 5] = 2
    assert not snapshot.is_current()
