"""Kept constants are ordinary tensors: no mode leaves its own kind of tensor behind for the passes after it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from onelip.layers import create_conv
from onelip.linalg import constants
from onelip.linalg.fourier import real_dft

FAMILIES = ["aol", "cayley", "eco", "sandwich", "sll", "soc"]
"""A kernel, frequency matrices, k x k tori, two convolutions, a residual layer, a series."""
EXPORTED = ["cayley"]  # an export takes longer than all else together
CHANNELS, SIDE = 8, 4  # so small an image that a kernel acts on frequencies, too


def layer_of(key: str) -> nn.Module:
    torch.manual_seed(1)
    return create_conv(key, CHANNELS, CHANNELS, 3)


def images() -> Tensor:
    return torch.linspace(-1, 1, CHANNELS * SIDE * SIDE).reshape(1, CHANNELS, SIDE, SIDE)


def train_step(key: str, model: nn.Module) -> None:
    layer = layer_of(key)
    layer(images()).square().sum().backward()
    assert all(type(p.grad) is Tensor and bool(p.grad.isfinite().all()) for p in layer.parameters())


def fake_pass(key: str, model: nn.Module) -> None:
    with FakeTensorMode():
        layer_of(key)(images()).sum().backward()


def fake_pass_over_real_weights(key: str, model: nn.Module) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        model(images())


def meta_pass(key: str, model: nn.Module) -> None:
    with torch.device("meta"):
        assert layer_of(key)(images()).is_meta


def gradient_pass(key: str, model: nn.Module) -> None:
    torch.func.grad(lambda x: model(x).square().sum())(images())


def functionalized_pass(key: str, model: nn.Module) -> None:
    with torch.no_grad():
        torch.func.functionalize(model)(images())


def inference_pass(key: str, model: nn.Module) -> None:
    with torch.inference_mode():
        layer_of(key)(images())
        model(images())


def export_pass(key: str, model: nn.Module) -> None:
    torch.export.export(model, (images(),))


PASSES: list[Callable[[str, nn.Module], None]] = [
    train_step,
    fake_pass,
    fake_pass_over_real_weights,
    meta_pass,
    gradient_pass,
    functionalized_pass,
    inference_pass,
    export_pass,
]


@pytest.mark.parametrize("key", FAMILIES)
def test_passes_of_all_kinds_follow_each_other_in_all_orders(key: str) -> None:
    expected = layer_of(key).eval()(images())
    passes = PASSES if key in EXPORTED else [each for each in PASSES if each is not export_pass]
    for first, second in itertools.permutations(passes, 2):
        constants._cache.clear()
        model = layer_of(key).eval()
        first(key, model)
        second(key, model)
        torch.testing.assert_close(model(images()), expected, msg=f"after {first.__name__} and {second.__name__}")
        train_step(key, model)


def test_the_default_device_is_part_of_the_key() -> None:
    with torch.device("meta"):
        assert real_dft((4, 4), torch.float32).rows.is_meta
    assert not real_dft((4, 4), torch.float32).rows.is_meta


def test_the_number_of_constants_is_limited() -> None:
    for side in range(1, 2 * constants._MOST_CACHED):
        real_dft((1, side), torch.float32)
    assert len(constants._cache) <= constants._MOST_CACHED


def test_what_is_in_use_is_kept_and_what_was_used_longest_ago_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "_cache", {})
    monkeypatch.setattr(constants, "_MOST_CACHED", 3)
    made: list[str] = []

    def make(name: str) -> Callable[[torch.device], Tensor]:
        return lambda device: (made.append(name), torch.zeros(1, device=device))[1]

    for name in ["a", "b", "c", "a", "d", "a", "b"]:
        constants.cached_constant((name,), torch.device("cpu"), make(name))
    assert made == ["a", "b", "c", "d", "b"]
