"""Augmentations: functions of a batch of uint8 images and of one row of random integers per image.

The integers are drawn ahead, for a whole epoch, by the batch stream. So an augmentation has no state, does not
touch the global random state, and treats every image of a batch differently with a fixed number of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from onelip.bench.data.rand_augment import RandAugment
from onelip.errors import InvalidInputError
from onelip.protocol import AugmentationName


class Augmentation(Protocol):
    """A random change of images, in two steps."""

    def draw(self, count: int, generator: Generator) -> Tensor:
        """(count, k) int64 on the CPU: one row of random choices per image."""
        ...

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """The changed uint8 images (N, C, H, W), for the rows of choices (N, k) on the same device."""
        ...


class CropFlip:
    """Pad by 4 pixels on each side, cut out the original size at a random place, flip half of the images.

    The border has the colour `fill`, by default black. The comparison paper pads images from which the mean is
    subtracted already, with zeros: its border has the mean colour of the training set.
    """

    def __init__(self, padding: int = 4, fill: Sequence[int] = (0,)) -> None:
        if padding < 0:
            raise InvalidInputError(f"padding must be 0 or more, got {padding}")
        self.padding, self.fill = padding, tuple(fill)

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Columns: row offset, column offset, flip."""
        offsets = torch.randint(2 * self.padding + 1, (count, 2), generator=generator)
        return torch.cat([offsets, torch.randint(2, (count, 1), generator=generator)], dim=1)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Crop and flip every image by its own choices."""
        count, channels, height, width = images.shape
        top, left, flip = draws.unbind(1)
        rows = top[:, None] + torch.arange(height, device=images.device)
        columns = torch.arange(width, device=images.device)
        columns = left[:, None] + torch.where(flip.bool()[:, None], width - 1 - columns, columns)
        # One gather for crop and flip, with the place of each pixel in the padded image as its index.
        places = rows[:, :, None] * (width + 2 * self.padding) + columns[:, None, :]
        fill = torch.tensor(self.fill, dtype=images.dtype, device=images.device)
        padded = F.pad(images - fill[:, None, None], [self.padding] * 4).add_(fill[:, None, None]).flatten(2)
        return padded.gather(2, places.flatten(1)[:, None].expand(-1, channels, -1)).view(
            count, channels, height, width
        )


def make_augmentation(name: AugmentationName, mean: Sequence[float] = (0.0,)) -> Augmentation | None:
    """The augmentation of that name: none, crop-flip (CIFAR in the paper) or randaugment (Tiny ImageNet).

    shift-flip is crop-flip by up to 2 pixels in place of 4, for trainings of a few epochs. `mean` is the mean colour of
    the images in [0, 1], which the borders get.
    """
    match name:
        case "none":
            return None
        case "shift-flip" | "crop-flip":
            return CropFlip(2 if name == "shift-flip" else 4, [round(255 * value) for value in mean])
        case "randaugment":
            return RandAugment()
        case _:
            raise InvalidInputError(f"unknown augmentation {name!r}; known: none, shift-flip, crop-flip, randaugment")
