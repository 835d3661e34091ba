"""Channels in the order of activations that sort: the m-th members of all groups lie side by side.

The comparison paper's MaxMin sorts neighbouring channels (2i, 2i + 1), and its network then keeps the first half of the
channels: maxima *and* minima of half of the pairs. Sorting is faster on two contiguous halves, so here the members of
pair i are the channels i and i + c/2, and with g members a group those are i, i + c/g, i + 2 c/g, ... The two networks
are the same function with their weights permuted, if the channels that are appended, kept and moved are permuted in the
same way. That is what these two modules do; both are 1-Lipschitz, because they append zeros, drop and move entries.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.linalg.definition import Definition
from onelip.proofs.bounded import BoundedModule, moves_entries

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

    bound = moves_entries
    repr_format = "{0.channels}, group_size={0.group_size}"


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
        _, channels, height, width = x.shape
        if channels % (2 * self.group_size) or height % 2 or width % 2:
            raise InvalidInputError(
                f"HalveAndUnshuffle needs a multiple of {2 * self.group_size} channels and even sides, "
                f"got {tuple(x.shape[1:])}"
            )
        order = _NEXT_ORDER[self.next_group_size]
        return half_unshuffled(x, self.group_size, order)

    bound = moves_entries
    repr_format = "{0.group_size}, next_group_size={0.next_group_size}"


_PLACES = {"m": 1, "i": 2, "y": 4, "x": 6}
"""Dimensions of `kept_parts`."""


def kept_parts(x: Tensor, group_size: int) -> Tensor:
    """The half that is kept, seen as (batch, m, i, h / 2, y, w / 2, x)."""
    groups = x.unflatten(1, (group_size, -1))[:, :, : x.shape[1] // group_size // 2]
    return groups.unflatten(4, (x.shape[3] // 2, 2)).unflatten(3, (x.shape[2] // 2, 2))


@Definition
def half_unshuffled(x: Tensor, group_size: int, order: str) -> Tensor:
    """The first half of the groups, pixels unshuffled, by one copy; channels that lay innermost stay there."""
    parts, places = kept_parts(x, group_size), [_PLACES[index] for index in order]
    (batch, channels), (high, wide) = x.shape[:2], (parts.shape[3], parts.shape[5])
    if x.stride(1) == 1:
        pixels = parts.permute(0, 3, 5, *places).contiguous().view(batch, high, wide, 2 * channels)
        return pixels.permute(0, 3, 1, 2)
    return parts.permute(0, *places, 3, 5).contiguous().view(batch, 2 * channels, high, wide)
