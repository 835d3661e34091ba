"""The protocol of the comparison paper: radii, sizes, widths and data sets, each written here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

RADII = (36 / 255, 72 / 255, 108 / 255, 1.0)
"""Radii at which certified accuracy is reported, in the Euclidean norm of images with values in [0, 1]."""

WIDTHS = {"XS": 16, "S": 32, "M": 64, "L": 128}
"""Channels after the first layer for images up to 32 x 32; each doubling of the side beyond halves them."""

SIZES = tuple(WIDTHS)


@dataclass(frozen=True)
class ImageFormat:
    """What a network must know about a data set."""

    num_classes: int
    image_size: int
    channels: int = 3


DATA_SETS = {
    "cifar10": ImageFormat(10, 32),
    "cifar100": ImageFormat(100, 32),
    "tiny-imagenet": ImageFormat(200, 64),
}
"""The data sets of the paper, with the side of their square images."""
