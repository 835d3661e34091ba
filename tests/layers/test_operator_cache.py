"""A second evaluation makes few calls, and is never that of other parameters, modes or watchers."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import onelip
from onelip.errors import InvalidInputError
from onelip.layers import AOLConv2d, create_conv, create_linear
from onelip.layers.memory_format import any_memory_format
from onelip.layers.operators import Operator
from onelip.linalg.devices import pretend_device


def calls_of(run: Callable[[], object]) -> int:
    """Calls of functions written in Python."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("method", ["aol", "bcop", "standard"])
@pytest.mark.parametrize("options", [{}, {"padding_mode": "zeros"}, {"bias": False}])
def test_a_cached_evaluation_makes_few_calls(method: str, options: dict[str, Any]) -> None:
    """Around one convolution of a small image, each call of Python counts."""
    layer, x = create_conv(method, 4, 4, 3, **options).eval(), torch.randn(1, 4, 8, 8)
    linear, features = create_linear(method, 4, 4).eval(), torch.randn(1, 4)
    with torch.no_grad():
        for _ in range(2):
            layer(x)
            linear(features)
        assert calls_of(lambda: layer(x)) <= 25
        assert calls_of(lambda: linear(features)) <= 25


class Doubled(AOLConv2d):
    """A layer with an input transformation of its own."""

    def apply_to(self, x: Tensor, operator: Operator) -> Tensor:
        return 2 * super().apply_to(x, operator)


LAYERS = {
    "circular": lambda: create_conv("aol", 4, 4, 3),
    "zeros": lambda: create_conv("aol", 4, 6, (3, 5), padding_mode="zeros"),
    "one pixel": lambda: create_conv("bcop", 4, 4, 1),
    "around the circle twice": lambda: create_conv("aol", 4, 4, (17, 19)),
    "even": lambda: create_conv("aol", 4, 4, 2),
    "strided": lambda: create_conv("aol", 4, 4, 3, 2),
    "groups": lambda: create_conv("aol", 4, 4, 3, groups=2),
    "square": lambda: create_conv("soc", 4, 6, 3),
    "frequencies": lambda: create_conv("lot", 4, 4, 3),
    "residual": lambda: create_conv("cpl", 4, 4, 3),
    "own": lambda: Doubled(4, 4, 3),
}


@pytest.mark.parametrize("shape", [(1, 4, 8, 8), (600, 4, 8, 8), (0, 4, 8, 8), (4, 8, 8)])
@pytest.mark.parametrize("name", LAYERS)
def test_it_equals_the_first_one(name: str, shape: tuple[int, ...]) -> None:
    """Up to rounding, in the memory format of the input; also where any format will do."""
    layer, x = LAYERS[name]().eval().double(), torch.randn(shape).double()
    formats = [x, x.contiguous(memory_format=torch.channels_last)] if x.dim() == 4 else [x]
    with torch.no_grad():
        for image in formats:
            first = copy.deepcopy(layer)(image)
            for _ in range(3):
                y = layer(image)
                torch.testing.assert_close(y, first, rtol=1e-12, atol=1e-12)
                assert y.stride() == first.stride()
            with any_memory_format():
                torch.testing.assert_close(layer(image), first, rtol=1e-12, atol=1e-12)


def _functional(layer: nn.Module, x: Tensor) -> Tensor:
    other = {name: torch.randn_like(tensor) for name, tensor in layer.named_parameters()}
    expected = create_conv("aol", 4, 4, 3).eval()
    expected.load_state_dict(other, strict=False)
    assert torch.equal(torch.func.functional_call(layer, other, x), expected(x))
    return layer(x)


def _forced(layer: nn.Module, x: Tensor) -> Tensor:
    with pretend_device("accelerator"):
        return layer(x)


CHANGES: dict[str, Callable[[Any], object]] = {
    "in place": lambda layer: layer.weight.mul_(0.5),
    "data": lambda layer: layer.weight.data.mul_(0.5),
    "numpy": lambda layer: layer.weight.numpy().__imul__(0.5),
    "other data": lambda layer: setattr(layer.weight, "data", torch.randn(4, 4, 3, 3)),
    "other parameter": lambda layer: setattr(layer, "weight", nn.Parameter(torch.randn(4, 4, 3, 3))),
    "table": lambda layer: layer._parameters.update(weight=nn.Parameter(torch.randn(4, 4, 3, 3))),
    "state": lambda layer: layer.load_state_dict({"weight": torch.randn(4, 4, 3, 3), "bias": torch.randn(4)}),
    "other bias": lambda layer: setattr(layer, "bias", nn.Parameter(torch.randn(4))),
    "no bias": lambda layer: setattr(layer, "bias", None),
    "bias in place": lambda layer: layer.bias.add_(1),
    "training": lambda layer: layer.train(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(change: str) -> None:
    torch.manual_seed(0)
    layer, x = AOLConv2d(4, 4, 3, init="normal").requires_grad_(False).eval(), torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        for _ in range(3):
            layer(x)
        CHANGES[change](layer)
        torch.testing.assert_close(layer(x), copy.deepcopy(layer)(x), rtol=0, atol=1e-6)


def test_other_tensors_in_place_of_parameters() -> None:
    layer, x = AOLConv2d(4, 4, 3).eval(), torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        before = layer(x)
        layer(x)
        assert torch.equal(_functional(layer, x), before)


class Seen(TorchFunctionMode):
    """Notes what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[object] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


def test_watchers_see_what_they_saw_before() -> None:
    """Gradients, autocast, function transforms, modes, replaced methods and compilers."""
    layer, x = AOLConv2d(4, 4, 3).eval(), torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        expected = layer(x)
        layer(x)
        assert torch.allclose(torch.vmap(layer)(x[None])[0], expected, atol=1e-6)
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        with FlopCounterMode(display=False) as counter:
            layer(x)
        assert counter.get_total_flops() > 0
        with Seen() as seen:
            assert torch.allclose(layer(x), expected, atol=1e-6)
        assert F.conv2d in seen.functions
        assert torch.allclose(_forced(layer, x), expected, atol=1e-6)
        with onelip.fast.off():
            assert torch.allclose(layer(x), expected, atol=1e-6)
        with pytest.raises(InvalidInputError):
            layer(x.double())
        with pytest.raises(InvalidInputError):
            layer(x[:, :3])
    wanted = x.clone().requires_grad_()
    layer(wanted).sum().backward()
    assert wanted.grad is not None
    layer.apply_to = lambda x, operator: x
    with torch.no_grad():
        assert layer(x) is x or torch.equal(layer(x), x)
    del layer.apply_to
    copied = copy.deepcopy(layer)
    with torch.no_grad():
        assert torch.allclose(copied(x), expected, atol=1e-6)
