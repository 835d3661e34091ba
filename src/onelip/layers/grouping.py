"""Channels in the order of activations that sort: the m-th members of all groups lie side by side.

The comparison paper's MaxMin sorts neighbouring channels (2i, 2i + 1), and its network then keeps the first half of the
channels: maxima *and* minima of half of the pairs. Sorting is faster on two contiguous halves, so here the members of
pair i are the channels i and i + c/2, and with g members a group those are i, i + c/g, i + 2 c/g, ... The two networks
are the same function with their weights permuted, if the channels that are appended, kept and moved are permuted in the
same way. That is what these two modules do; both are 1-Lipschitz, because they append zeros, drop and move entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.bounded import BoundedModule
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.layer_bound import LayerBound, exact_bound
from onelip.linalg.tensor_modes import is_traced, run

_NEXT_ORDER = {1: "imyx", 2: "ximy", 4: "yxim"}
"""Channels after a pixel unshuffle, outermost index first: group i, member m, row y and column x of the 2 x 2 pixels.
In the paper's order imyx, groups of two neighbours differ in x, groups of four in y and x."""


class GroupedChannelPad(BoundedModule):
    """Append channels of zeros until there are `channels`, the k-th channel as member k mod g of group k // g."""

    def __init__(self, channels: int, group_size: int) -> None:
        super().__init__()
        self.channels, self.group_size = channels, group_size

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, c, h, w) to (batch, channels, h, w)."""
        if x.shape[1] > self.channels:
            raise InvalidInputError(f"GroupedChannelPad({self.channels}) got an input of {x.shape[1]} channels")
        groups = self.channels // self.group_size
        members = (x[:, member :: self.group_size] for member in range(self.group_size))
        return torch.cat([F.pad(part, (0, 0, 0, 0, 0, groups - part.shape[1])) for part in members], 1)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Zeros are appended between entries: constant 1, and nothing is rounded."""
        return exact_bound()

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.channels}, group_size={self.group_size}"


class HalveAndUnshuffle(BoundedModule):
    """Keep the first half of the groups, all members of each, and unshuffle pixels by 2.

    Half of the channels of an image of h x w become twice as many of h/2 x w/2. `next_group_size` is that of the
    activation that follows; 1 leaves the channels in the paper's order, for a layer with none behind it.
    """

    def __init__(self, group_size: int, next_group_size: int) -> None:
        super().__init__()
        self.group_size, self.next_group_size = group_size, next_group_size

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, c, h, w) to (batch, 2 c, h / 2, w / 2) in one copy; channels that lay innermost stay there."""
        batch, channels, height, width = x.shape
        if channels % (2 * self.group_size) or height % 2 or width % 2:
            raise InvalidInputError(
                f"HalveAndUnshuffle needs a multiple of {2 * self.group_size} channels and even sides, "
                f"got {tuple(x.shape[1:])}"
            )
        order = _NEXT_ORDER[self.next_group_size]
        if x.stride(1) == 1 and suits_cpu(x.device) and not is_traced():
            return run(_Unshuffled, x, self.group_size, order)
        parts, places = _parts(x, self.group_size), [_PLACES[index] for index in order]
        if x.stride(1) == 1:
            pixels = parts.permute(0, 3, 5, *places).contiguous().view(batch, height // 2, width // 2, 2 * channels)
            return pixels.permute(0, 3, 1, 2)
        return parts.permute(0, *places, 3, 5).contiguous().view(batch, 2 * channels, height // 2, width // 2)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Entries are dropped and moved: constant 1, and nothing is rounded."""
        return exact_bound()

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.group_size}, next_group_size={self.next_group_size}"


_AT_ONCE = 2**15
"""Numbers of an input that one copy moves as fast as several."""

_PLACES = {"m": 1, "i": 2, "y": 4, "x": 6}
"""Dimensions of `_parts`."""


def _parts(x: Tensor, group_size: int) -> Tensor:
    """The half that is kept, seen as (batch, m, i, h / 2, y, w / 2, x)."""
    groups = x.unflatten(1, (group_size, -1))[:, :, : x.shape[1] // group_size // 2]
    return groups.unflatten(4, (x.shape[3] // 2, 2)).unflatten(3, (x.shape[2] // 2, 2))


def _pieces(x: Tensor, pixels: Tensor, group_size: int, order: str) -> Iterator[tuple[Tensor, Tensor]]:
    """What goes from x to pixels (batch, h / 2, w / 2, 2 c) for one member and one of the 2 x 2 pixels at a time.

    Inside of each pair the channels i are the innermost dimension of both and the pixels the next ones. As one copy,
    torch goes through the numbers in the order of the result, two at a time: that takes two to four times as long, but
    for few numbers, where what counts is how many copies there are.
    """
    parts = _parts(x, group_size)
    sides = {"m": group_size, "i": parts.shape[2], "y": 2, "x": 2}
    result = pixels.unflatten(3, [sides[index] for index in order])
    kept = parts.permute(1, 4, 6, 0, 3, 5, 2)
    places = result.permute(*(3 + order.index(index) for index in "myx"), 0, 1, 2, 3 + order.index("i"))
    if x.numel() <= _AT_ONCE:
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
        return pixels.permute(0, 3, 1, 2)

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
