"""The fixed reference of all comparisons: the paper's ConvNet with plain convolutions, written the plain way.

`nn.Conv2d(padding="same")`, MaxMin as chunk, maximum, minimum and cat, float32, contiguous layout. It shares no
code with the layers and models of this package and is never made faster, so that a ratio to it means the same
in every version.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.protocol import WIDTHS

_CONVOLUTIONS_PER_BLOCK = 5


class PlainMaxMin(nn.Module):
    """(max(x1, x2), min(x1, x2)) for the two halves x1, x2 of the channels."""

    def forward(self, x: Tensor) -> Tensor:
        """Sort pairs of channels."""
        first, second = x.chunk(2, dim=1)
        return torch.cat([torch.maximum(first, second), torch.minimum(first, second)], dim=1)


class _Downsize(nn.Module):
    """Five convolutions with MaxMin, then half of the channels and a pixel unshuffle by 2."""

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(_CONVOLUTIONS_PER_BLOCK):
            layers += [nn.Conv2d(channels, channels, kernel_size, padding="same"), PlainMaxMin()]
        self.layers = nn.Sequential(*layers)
        self.kept = channels // 2
        self.unshuffle = nn.PixelUnshuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        """(b, t, s, s) to (b, 2 t, s / 2, s / 2)."""
        return self.unshuffle(self.layers(x)[:, : self.kept])


class ReferenceConvNet(nn.Module):
    """The paper's ConvNet with plain convolutions.

    Args:
        size: "XS", "S", "M" or "L".
        num_classes: number of logits.
        input_size: 32, or 64 for one more block at half the width (the paper's Tiny ImageNet network).
        width: replaces the width that belongs to `size` and `input_size`, for small test networks.
    """

    def __init__(
        self, size: str = "XS", num_classes: int = 10, input_size: int = 32, *, width: int | None = None
    ) -> None:
        super().__init__()
        if size not in WIDTHS or input_size not in (32, 64):
            raise InvalidInputError(
                f"the reference has the sizes {', '.join(WIDTHS)} for images of 32 or 64, not {size} for {input_size}"
            )
        blocks = 5 if input_size == 32 else 6
        width = width or WIDTHS[size] * 32 // input_size
        self.width, self.num_classes = width, num_classes
        self.stem = nn.Sequential(nn.Conv2d(width, width, 1, padding="same"), PlainMaxMin())
        self.blocks = nn.Sequential(*(_Downsize(width * 2**i, 1 if i == blocks - 1 else 3) for i in range(blocks)))
        features = width * 2**blocks
        self.head = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        """(b, 3, n, n) to (b, num_classes)."""
        padding = x.new_zeros(x.shape[0], self.width - x.shape[1], *x.shape[2:])
        x = self.blocks(self.stem(torch.cat([x, padding], dim=1)))
        return self.head(x.flatten(1))[:, : self.num_classes]
