"""Circular padding that is written out: by F.pad in a step of its own, or by an index of pixels.

A convolution without padding of such a value is a circular convolution of the image before it was padded, whose norm is
smaller than that of the padding, sqrt(copies), times that of the convolution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import Moved, Node, Shape

Padding = tuple[tuple[int, int], tuple[int, int]]
"""Before and after the image, for rows and for columns."""

_STEPS = 4
"""Moves that are looked through: flattening, picking, unflattening."""


class PaddedImage(NamedTuple):
    """The image (channels, height, width) that was padded, and by how much before and after each axis."""

    image: Node
    padding: Padding


def padded_image(node: Node) -> PaddedImage | None:
    """The image of which the value of a node is the circular padding, if it is one."""
    if len(node.shape) != 3:
        return None
    index, current = torch.arange(math.prod(node.shape)), node
    for _ in range(_STEPS):
        moved = current.fact(Moved)
        if moved is None or len(current.inputs) != 1:
            return None
        step, source = moved.indices(0), current.inputs[0]
        index = step[index]
        if bool((index < 0).any()):
            return None
        if source.norm is None and torch.equal(step, torch.arange(math.prod(source.shape))):
            source.norm = current.norm
        found = _padding(index, node.shape, source.shape)
        if found is not None:
            return None if source.norm is None else PaddedImage(source, found)
        current = source
    return None


def _padding(index: Tensor, padded: Shape, image: Shape) -> Padding | None:
    """How an image of this shape is padded where `index` says which of its entries each padded one is."""
    if len(image) != 3 or image[0] != padded[0]:
        return None
    row, column = divmod(int(index[0]) % (image[1] * image[2]), image[2])
    before = -row % image[1], -column % image[2]
    after = padded[1] - image[1] - before[0], padded[2] - image[2] - before[1]
    if min(after) < 0 or after[0] > image[1] or after[1] > image[2] or not any((*before, *after)):
        return None
    numbers = torch.arange(math.prod(image), dtype=torch.float64).reshape(1, *image)
    padding = (before[0], after[0]), (before[1], after[1])
    return padding if torch.equal(circular_padding(numbers, padding).flatten().long(), index) else None


def circular_padding(x: Tensor, padding: Padding) -> Tensor:
    """Images with pixels from the opposite side around them."""
    return F.pad(x, (*padding[1], *padding[0]), mode="circular")
