"""Evaluation by stages: the same scores, smaller tensors, and unseen by hooks, gradients and compilers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from onelip import fuse
from onelip.layers import MaxMin, list_methods
from onelip.models import ConvNet
from onelip.models import batch_parts as stages

WIDTH, SIDE = 8, 16
IMAGE_BYTES = WIDTH * SIDE**2 * 4
BATCH = 7


@pytest.fixture(autouse=True)
def parts_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images at a time in the first stage, four in the second, all seven from the third on."""
    monkeypatch.setattr(stages, "BYTES_AT_ONCE", 2 * IMAGE_BYTES)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(images, side) of everything that a MaxMin activation has got; no hook, because hooks forbid splitting."""
    sizes: list[tuple[int, int]] = []
    original = MaxMin.forward

    def record(self: MaxMin, x: Tensor) -> Tensor:
        sizes.append((x.shape[0], x.shape[-1]))
        return original(self, x)

    monkeypatch.setattr(MaxMin, "forward", record)
    return sizes


def network(method: str = "aol", dtype: torch.dtype = torch.float32) -> ConvNet:
    torch.manual_seed(0)
    model = ConvNet(method, None, 10, SIDE, width=WIDTH, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(BATCH, 3, SIDE, SIDE, dtype=dtype)


@pytest.mark.parametrize("method", [method.key for method in list_methods()])
def test_scores_do_not_depend_on_the_parts(method: str) -> None:
    model, x = network(method, torch.float64), images(torch.float64)
    whole = nn.Sequential(*model.children())(x)
    with torch.no_grad():
        torch.testing.assert_close(model(x), whole, rtol=1e-10, atol=1e-12)


def test_no_part_is_larger_than_allowed(seen: list[tuple[int, int]]) -> None:
    with torch.no_grad():
        assert network()(images()).shape == (BATCH, 10)
    for side, parts in [(16, [2, 2, 2, 1]), (8, [4, 3]), (4, [7]), (2, [7])]:
        activations = 6 if side == SIDE else 5  # the first stage has the stem's as well
        assert [count for count, size in seen if size == side] == [n for n in parts for _ in range(activations)]


def test_double_precision_takes_half_as_many_images(seen: list[tuple[int, int]]) -> None:
    with torch.no_grad():
        network(dtype=torch.float64)(images(torch.float64))
    assert {count for count, size in seen if size == SIDE} == {1}


def test_one_image_larger_than_the_cache_is_one_part(
    seen: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "BYTES_AT_ONCE", 1)
    with torch.no_grad():
        network()(images())
    assert {count for count, _ in seen} == {1}


def test_gradients_are_those_of_the_whole_batch(seen: list[tuple[int, int]]) -> None:
    x = images().requires_grad_()
    network()(x).square().sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    assert {count for count, _ in seen} == {BATCH}


def test_training_mode_sees_the_whole_batch(seen: list[tuple[int, int]]) -> None:
    with torch.no_grad():
        network().train()(images())
    assert {count for count, _ in seen} == {BATCH}


def test_hooks_of_parts_see_the_whole_batch() -> None:
    model, counts = network(), list[int]()
    handle = model.get_submodule("block1.conv2").register_forward_hook(
        lambda _, inputs, __: counts.append(len(inputs[0]))
    )
    with torch.no_grad():
        model(images())
        assert counts == [BATCH]
        handle.remove()
        assert stages.may_be_split(model, images(), IMAGE_BYTES)


def test_global_hooks_see_the_whole_batch() -> None:
    model, counts = network(), set[int]()
    handle = register_module_forward_hook(lambda _, inputs, __: counts.add(len(inputs[0])))
    try:
        with torch.no_grad():
            model(images())
    finally:
        handle.remove()
    assert counts == {BATCH}


def test_a_hook_of_the_network_forbids_nothing(seen: list[tuple[int, int]]) -> None:
    model, counts = network(), list[int]()
    model.register_forward_hook(lambda _, inputs, output: counts.append(len(output)))
    with torch.no_grad():
        model(images())
    assert counts == [BATCH]
    assert (2, SIDE) in seen


@pytest.mark.parametrize("images_at_once", [2, 100])
def test_fused_networks_pad_as_fast(images_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own convolutions are computed as those of layers are, unless a hook looks or gradients are wanted."""
    padded: list[int] = []
    original = stages.same_convolution

    def record(x: Tensor, *arguments: Any) -> Tensor:
        padded.append(len(x))
        return original(x, *arguments)

    monkeypatch.setattr(stages, "same_convolution", record)
    fused, x = fuse(network(dtype=torch.float64)), torch.randn(40, 3, SIDE, SIDE, dtype=torch.float64)
    whole = nn.Sequential(*fused.children())(x)
    monkeypatch.setattr(stages, "BYTES_AT_ONCE", 2 * IMAGE_BYTES * images_at_once)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), whole, rtol=1e-10, atol=1e-12)
        assert sum(padded) == 15 * 40  # three blocks of five convolutions, the fourth has kernels of one tap
        padded.clear()
        handle = fused.get_submodule("block1.conv2").register_forward_hook(lambda *_: None)
        fused(x)
        handle.remove()
        fused.get_submodule("block1").forward = lambda x: x[:, :1].expand(-1, 16, -1, -1)[..., ::2, ::2]
        fused(x)
        assert sum(padded) == 10 * 40
    fused(x)
    assert sum(padded) == 10 * 40


def test_exported_programs_take_any_batch() -> None:
    model, x = network(), images()
    with torch.no_grad():
        batch = torch.export.Dim("batch", min=2, max=64)
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},)).module()
        torch.testing.assert_close(program(x[:5]), model(x[:5]))


def test_evaluation_takes_less_memory_at_once() -> None:
    from onelip.bench.measurement.memory import LiveTensors

    model, x = network(), torch.randn(64, 3, SIDE, SIDE)
    peaks = []
    with torch.no_grad():
        for forward in (model, nn.Sequential(*model.children())):
            forward(x)
            with LiveTensors() as live:
                forward(x)
            peaks.append(live.peak)
    assert peaks[0] < 0.7 * peaks[1]
