"""Functions with gradients of their own, run with autograd and without."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from onelip.layers import MaxMin
from onelip.linalg.tensor_modes import run


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scratch: Tensor) -> Tensor:
        ctx.save_for_backward(x, scratch)
        ctx.note, ctx.asked = scratch, ctx.needs_input_grad[0]
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return 2 * gradients[0], None


def test_with_gradients_it_is_the_function() -> None:
    x = torch.ones(3, requires_grad=True)
    y = run(Doubled, x, torch.ones(1))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, torch.full((3,), 2.0))


def test_without_gradients_nothing_is_kept() -> None:
    x, scratch = torch.ones(3, requires_grad=True), torch.ones(1)
    kept = weakref.ref(scratch)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            y = run(Doubled, x, scratch)
        assert torch.equal(y, torch.full((3,), 2.0))
        assert not y.requires_grad
        assert y.is_inference() == (context is torch.inference_mode)
    del scratch
    assert kept() is None


def test_a_layer_gives_the_same_with_gradients_and_without() -> None:
    x = torch.randn(2, 4, 3, 3, requires_grad=True)
    with torch.no_grad():
        y = MaxMin()(x)
    assert torch.equal(MaxMin()(x), y)
    assert not y.requires_grad
