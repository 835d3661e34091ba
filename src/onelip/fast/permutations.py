"""Pairs sorted, and pixels unshuffled, by copies written into one result. Of sorting, the gradient keeps a mask."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.layers.blocks.activations import max_min, members
from onelip.layers.blocks.grouping import half_unshuffled, kept_parts
from onelip.linalg.devices import is_cpu
from onelip.linalg.tensor_modes import run

AT_ONCE = 2**15
"""Numbers of an input that one copy moves as fast as several."""


def by_one_mask(x: Tensor, dim: int) -> Tensor:
    """The maxima of all pairs, then the minima."""
    return run(_MaxMinFunction, x, dim)


def by_runs_of_channels(x: Tensor, group_size: int, order: str) -> Tensor:
    """The first half of the groups, pixels unshuffled, of images whose channels lie innermost."""
    return run(_Unshuffled, x, group_size, order)


class _MaxMinFunction(torch.autograd.Function):
    """Maxima and minima written into one output in the layout of the input; only a mask is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        first, second = members(x, dim)
        y = torch.empty_like(x)
        larger, smaller = members(y, dim)
        torch.maximum(first, second, out=larger)
        torch.minimum(first, second, out=smaller)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(first >= second)
            ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        (keep,) = ctx.saved_tensors
        return run(_SwapFunction, grad_outputs[0], keep, ctx.dim), None


class _SwapFunction(torch.autograd.Function):
    """Exchange the halves of x where `keep` is false: symmetric, hence its own backward.

    `lerp` with weights 0 and 1 is exact and, on a CPU, twice as fast as `where`, which is not vectorised. Numbers of 16
    bits go through float32 there, several times as slow as to exchange their bits: a ^ (a ^ b) is b.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, dim: int) -> Tensor:
        y = torch.empty_like(x)
        by_bits = x.element_size() == 2 and is_cpu(x.device)
        first, second = members(x.view(torch.int16) if by_bits else x, dim)
        out_first, out_second = members(y.view(torch.int16) if by_bits else y, dim)
        if by_bits:
            change = torch.bitwise_xor(first, second).mul_(~keep)
            torch.bitwise_xor(first, change, out=out_first)
            torch.bitwise_xor(second, change, out=out_second)
        else:
            weight = keep.to(x.dtype)
            torch.lerp(second, first, weight, out=out_first)
            torch.lerp(first, second, weight, out=out_second)
        ctx.save_for_backward(keep)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        (keep,) = ctx.saved_tensors
        return run(_SwapFunction, grad_outputs[0], keep, ctx.dim), None, None


def _pieces(x: Tensor, pixels: Tensor, group_size: int, order: str) -> Iterator[tuple[Tensor, Tensor]]:
    """What goes from x to pixels (batch, h / 2, w / 2, 2 c) for one member and one of the 2 x 2 pixels at a time.

    Inside of each pair the channels i are the innermost dimension of both and the pixels the next ones. As one copy,
    torch goes through the numbers in the order of the result, two at a time: that takes two to four times as long, but
    for few numbers, where what counts is how many copies there are.
    """
    parts = kept_parts(x, group_size)
    sides = {"m": group_size, "i": parts.shape[2], "y": 2, "x": 2}
    result = pixels.unflatten(3, [sides[index] for index in order])
    kept = parts.permute(1, 4, 6, 0, 3, 5, 2)
    places = result.permute(*(3 + order.index(index) for index in "myx"), 0, 1, 2, 3 + order.index("i"))
    if x.numel() <= AT_ONCE:
        yield kept, places
        return
    for chosen in itertools.product(range(group_size), range(2), range(2)):
        yield kept[chosen], places[chosen]


class _Unshuffled(torch.autograd.Function):
    """The copy for images whose channels lie innermost; its gradient is the copy back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group_size: int, order: str) -> Tensor:
        ctx.options = group_size, order
        if ctx.needs_input_grad[0]:
            ctx.layout = x.shape, torch.empty_like(x, device="meta").stride()  # that of x, where its numbers are apart
        batch, channels, height, width = x.shape
        pixels = x.new_empty(batch, height // 2, width // 2, 2 * channels)
        for kept, place in _pieces(x, pixels, group_size, order):
            place.copy_(kept)
        return pixels.permute(0, 3, 1, 2).detach()  # no view, which none may write to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return run(_Shuffled, gradients[0], *ctx.layout, *ctx.options), None, None


class _Shuffled(torch.autograd.Function):
    """The transpose of `_Unshuffled`: zeros where nothing was kept."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, shape: torch.Size, strides: tuple[int, ...], group_size: int, order: str
    ) -> Tensor:
        ctx.options = group_size, order
        x = y.new_empty_strided(shape, strides).zero_()
        for kept, place in _pieces(x, y.permute(0, 2, 3, 1), group_size, order):
            kept.copy_(place)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        g = gradients[0].contiguous(memory_format=torch.channels_last)
        return run(_Unshuffled, g, *ctx.options), None, None, None, None


ROWS = (
    Row(max_min, by_one_mask, "all", "without it the plain network at XS: step 1.50, inference 1.65"),
    Row(
        half_unshuffled,
        by_runs_of_channels,
        "cpu",
        "without it at XS: step 1.06 (plain network), inference 1.05 (AOL)",
        lambda x, *_: x.stride(1) == 1,
    ),
)
