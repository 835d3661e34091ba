"""The fixed reference of all comparisons: the paper's ConvNet with plain convolutions, written the plain way.

`nn.Conv2d(padding="same")`, MaxMin as chunk, maximum, minimum and cat, float32, contiguous layout. It shares no
code with the layers and models of this package and is never made faster, so that a ratio to it means the same
in every version.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
        width: channels after the first layer, the paper's w: 16, 32, 64, 128 for XS to L on 32 x 32 images.
        num_classes: number of logits.
        input_size: side of the images, a power of two; each block halves it.
        kernel_size: of all convolutions but the first and those of the last block, which are 1 x 1.
    """

    def __init__(self, width: int, num_classes: int = 10, input_size: int = 32, kernel_size: int = 3) -> None:
        super().__init__()
        blocks = input_size.bit_length() - 1
        self.width, self.num_classes = width, num_classes
        self.stem = nn.Sequential(nn.Conv2d(width, width, 1, padding="same"), PlainMaxMin())
        self.blocks = nn.Sequential(
            *(_Downsize(width * 2**i, 1 if i == blocks - 1 else kernel_size) for i in range(blocks))
        )
        features = width * 2**blocks
        self.head = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        """(b, 3, n, n) to (b, num_classes)."""
        padding = x.new_zeros(x.shape[0], self.width - x.shape[1], *x.shape[2:])
        x = self.blocks(self.stem(torch.cat([x, padding], dim=1)))
        return self.head(x.flatten(1))[:, : self.num_classes]
