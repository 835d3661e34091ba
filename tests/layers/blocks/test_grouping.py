"""Half of the channels, pixels unshuffled: number by number against the definition, in every layout, with gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onelip.layers.blocks.grouping import HalveAndUnshuffle
from onelip.linalg.devices import pretend_device

LAYOUTS = {
    "channels first": lambda x: x.contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "pixels outermost": lambda x: x.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1),
    "cut out": lambda x: torch.cat([x, x], 1).contiguous(memory_format=torch.channels_last)[:, : x.shape[1]],
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)
each_way = pytest.mark.parametrize("at_once", [0, 2**15], ids=["in pieces", "at once"])
each_pair = pytest.mark.parametrize(("group_size", "next_size"), [(1, 1), (2, 2), (2, 1), (4, 4), (4, 2)])


def by_definition(x: Tensor, group_size: int, next_size: int) -> Tensor:
    """One number at a time: group i, member m, row y and column x of the 2 x 2 pixels, in the order that follows."""
    batch, channels, height, width = x.shape
    groups, kept = channels // group_size, channels // group_size // 2
    sides = {"i": kept, "m": group_size, "y": 2, "x": 2}
    order = {1: "imyx", 2: "ximy", 4: "yxim"}[next_size]
    result = x.new_full((batch, 2 * channels, height // 2, width // 2), float("nan"))
    for i in range(kept):
        for m in range(group_size):
            for y in range(2):
                for column in range(2):
                    at, place = {"i": i, "m": m, "y": y, "x": column}, 0
                    for letter in order:
                        place = place * sides[letter] + at[letter]
                    result[:, place] = x[:, m * groups + i, y::2, column::2]
    return result


@each_way
@each_layout
@each_pair
def test_every_number_is_where_it_belongs(
    layout: str, group_size: int, next_size: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onelip.fast.permutations.AT_ONCE", at_once)
    x = LAYOUTS[layout](torch.randn(3, 8, 4, 6))
    module, expected = HalveAndUnshuffle(group_size, next_size), by_definition(x, group_size, next_size)
    assert torch.equal(module(x), expected)
    assert torch.equal(torch.func.vjp(module, x)[0], expected), "what compilers and torch.func get"
    with pretend_device("accelerator"):
        assert torch.equal(module(x), expected)
    if layout != "channels first":
        assert module(x).is_contiguous(memory_format=torch.channels_last)


@each_way
@each_layout
def test_gradients_of_both_orders(layout: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelip.fast.permutations.AT_ONCE", at_once)
    x = LAYOUTS[layout](torch.randn(2, 4, 2, 4, dtype=torch.float64)).requires_grad_()
    module = HalveAndUnshuffle(2, 2)
    assert torch.autograd.gradcheck(module, (x,))
    assert torch.autograd.gradgradcheck(lambda x: module(x) ** 2, (x,))


def test_gradient_of_an_expanded_image() -> None:
    """Its numbers lie upon each other; those of its gradient must not."""
    image = torch.randn(1, 4, 4, 4, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    x = image.expand(3, -1, -1, -1).detach().requires_grad_()
    weights = torch.randn(3, 8, 2, 2, dtype=torch.float64)
    (ours,) = torch.autograd.grad((HalveAndUnshuffle(2, 2)(x) * weights).sum(), x)
    plain = x.detach().contiguous().requires_grad_()
    (expected,) = torch.autograd.grad((by_definition(plain, 2, 2) * weights).sum(), plain)
    assert torch.equal(ours, expected)
