"""Parts of LipNeXt (Hu, Hu, Fredrikson, 2026): spatial mixing by shifts, |x| on a share of the channels, their block.

A shift moves whole channels by a pixel along an axis of the torus: a permutation of entries, hence an isometry that
costs a copy. Between two orthogonal mixers, 1 x 1 convolutions, it does what a convolution of four neighbours does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.memory_format import in_format_of
from onelip.layers.methods.stiefel import StiefelConv2d
from onelip.proofs.bounded import BoundedModule, moves_entries

_MOVES = ((1, -2), (-1, -2), (1, -1), (-1, -1))
"""Down, up, right, left: pixels and dimension."""


class SpatialShift(BoundedModule):
    """Move four groups of channels by one pixel each, down, up, right and left, around the torus; the rest stays.

    Args:
        share: of the channels that move, in all; each direction gets a quarter of it, in whole channels.
    """

    def __init__(self, share: float = 0.25) -> None:
        super().__init__()
        if not 0 < share <= 1:
            raise InvalidInputError(f"SpatialShift: share={share} must be in (0, 1]")
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to the same shape."""
        each = int(x.shape[1] * self.share) // len(_MOVES)
        if each == 0:
            raise InvalidInputError(f"SpatialShift({self.share}) needs more channels than the {x.shape[1]} it got")
        groups = x.split([each] * len(_MOVES) + [x.shape[1] - each * len(_MOVES)], 1)
        moved = [group.roll(pixels, dim) for group, (pixels, dim) in zip(groups, _MOVES, strict=False)]
        return in_format_of(x, torch.cat([*moved, groups[-1]], 1))

    bound = moves_entries
    repr_format = "share={0.share}"


class PartialAbs(BoundedModule):
    """|x| on the first channels, a share of them, and x on the others: an isometry wherever it is differentiable."""

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()
        if not 0 <= share <= 1:
            raise InvalidInputError(f"PartialAbs: share={share} must be in [0, 1]")
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, ...) to the same shape."""
        folded = int(x.shape[1] * self.share)
        return torch.cat([x[:, :folded].abs(), x[:, folded:]], 1)

    bound = moves_entries
    repr_format = "share={0.share}"


class LipNeXtBlock(nn.Sequential):
    """Mixer, shift, mixer, |x| on a share of the channels: orthogonal but for the fold, for `channels` channels."""

    def __init__(self, channels: int, *, shift: float = 0.25, fold: float = 0.5, **factory: Any) -> None:
        super().__init__()
        self.mixer1 = StiefelConv2d(channels, channels, 1, bias=False, **factory)
        self.shift = SpatialShift(shift)
        self.mixer2 = StiefelConv2d(channels, channels, 1, **factory)
        self.activation = PartialAbs(fold)
