"""Passes with an activation inside: what is kept of them. `test_table.py` compares their gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from onelip.layers import SandwichConv2d, SLLConv2d
from onelip.layers.branch_gradients import residual_branch, sandwich_pass
from onelip.linalg.fourier import real_dft, to_frequency

Pass = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
WIDE = torch.float64


def _sandwich(size: tuple[int, int]) -> Pass:
    return lambda x, inner, outer, bias: sandwich_pass(x, inner, outer, bias, size, real_dft(size, WIDE))


def _residual(size: tuple[int, int]) -> Pass:
    return lambda x, inner, outer, bias: residual_branch(x, inner, bias, size, real_dft(size, WIDE)) + outer.sum()


def _arguments(size: tuple[int, int], channels: int = 3) -> list[Tensor]:
    torch.manual_seed(0)
    x = to_frequency(torch.randn(2, channels, *size, dtype=WIDE), real_dft(size, WIDE))
    matrices = [torch.randn(*x.shape[:-2], channels, channels, dtype=WIDE) for _ in range(2)]
    return [tensor.requires_grad_() for tensor in (x, *matrices, torch.randn(channels, dtype=WIDE))]


@pytest.mark.parametrize("make", [_sandwich, _residual])
def test_what_needs_no_gradient_gets_none(make: Callable[[tuple[int, int]], Pass]) -> None:
    """As in evaluation, where gradients reach the input alone."""
    x, *rest = _arguments((4, 4))
    make((4, 4))(x, *(tensor.detach() for tensor in rest)).sum().backward()
    assert x.grad is not None
    assert all(tensor.grad is None for tensor in rest)


@pytest.mark.parametrize(
    ("side", "kernel_size", "images"), [(20, 3, 2), (20, 1, 1), (8, 3, 1), (4, 3, 2)], ids=["3x3", "1x1", "8x8", "4x4"]
)
def test_images_that_a_residual_layer_keeps(side: int, kernel_size: int, images: int) -> None:
    """As a convolution its input and its activation; one where the activation is computed anew: 1 x 1, frequencies."""
    layer, x = SLLConv2d(32, 32, kernel_size), torch.randn(8, 32, side, side, requires_grad=True)
    operator = layer.transform((side, side))
    kept: dict[int, Tensor] = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(t.data_ptr(), t), lambda t: t):
        operator.apply(x, layer.bias)
    assert sum(tensor.nbytes for tensor in kept.values() if tensor.numel() == x.numel()) == images * x.nbytes


def test_sandwich_keeps_one_image() -> None:
    """The frequencies of its input: 2 x 20 x 11 numbers for 20 x 20 pixels."""
    layer, x = SandwichConv2d(16, 16, 3), torch.randn(64, 16, 20, 20, requires_grad=True)
    operator = layer.transform((20, 20))
    kept: dict[int, Tensor] = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(t.data_ptr(), t), lambda t: t):
        operator.apply(x, layer.bias)
    images = sum(tensor.nbytes for tensor in kept.values() if tensor.dim() > 2 and 64 in tensor.shape)
    assert images == x.nbytes * 440 / 400
