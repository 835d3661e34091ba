"""Augmentations: functions of a batch of uint8 images and of one row of random integers per image.

The integers are drawn ahead, for a whole epoch, by the batch stream. So an augmentation has no state, does not
touch the global random state, and treats every image of a batch differently with a fixed number of kernels.

RandAugment (Cubuk et al., 2020) gives every image 2 random operations of 14, all with magnitude 9 on the scale 0..30.
Kornia's own picks the operations once for the whole batch. Here every image has its own, as in the paper of the method;
images with the same operation are gathered and changed by one call of Kornia.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from onelip.errors import InvalidInputError
from onelip.protocol import AugmentationName

_GEOMETRIC = ("shear-x", "shear-y", "translate-x", "translate-y", "rotate")
_COLOURS = ("brightness", "colour", "contrast", "sharpness", "posterize", "solarize", "autocontrast", "equalize")
OPERATIONS = ("identity", *_GEOMETRIC, *_COLOURS)


class RandAugment:
    """Two random operations per image, drawn independently with replacement, at one magnitude."""

    operations, strength = 2, 9 / 30

    def __init__(self) -> None:
        _kornia()  # a missing package is reported before training starts, not in its first step

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Columns: (operation, sign) for each operation in turn."""
        shape = (count, self.operations)
        chosen = torch.randint(len(OPERATIONS), shape, generator=generator)
        signs = torch.randint(2, shape, generator=generator) * 2 - 1
        return torch.stack([chosen, signs], dim=2).flatten(1)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Change every image by its own operations, one after the other."""
        for step in range(self.operations):
            images = self._apply_once(images, draws[:, 2 * step], draws[:, 2 * step + 1])
        return images

    def _apply_once(self, images: Tensor, chosen: Tensor, signs: Tensor) -> Tensor:
        result = images.clone()
        geometric = torch.isin(chosen, torch.tensor([OPERATIONS.index(n) for n in _GEOMETRIC], device=chosen.device))
        groups = [("geometric", geometric)]
        groups += [(name, chosen == OPERATIONS.index(name)) for name in _COLOURS]
        for name, members in groups:
            where = members.nonzero().squeeze(1)
            if not len(where):
                continue
            x, sign = images[where].to(torch.float32).div_(255), signs[where].to(torch.float32)
            y = self._warp(x, chosen[where], sign) if name == "geometric" else self._recolour(name, x, sign)
            result[where] = y.mul(255).round_().clamp_(0, 255).to(torch.uint8)
        return result

    def _warp(self, x: Tensor, chosen: Tensor, sign: Tensor) -> Tensor:
        """One affine map per image, nearest neighbour, black outside."""
        height, width = x.shape[-2:]
        amount = self.strength * sign
        shift = self.strength * 150 / 331  # the original's 150 pixels at ImageNet's 331
        matrices = torch.eye(3, device=x.device).repeat(len(x), 1, 1)
        entries = {"shear-x": (0, 1, 0.3 * amount), "shear-y": (1, 0, 0.3 * amount)}
        entries |= {"translate-x": (0, 2, sign * int(shift * width)), "translate-y": (1, 2, sign * int(shift * height))}
        for name, (row, column, values) in entries.items():
            matrices[:, row, column] = torch.where(chosen == OPERATIONS.index(name), values, 0.0)
        rotations = _rotations(amount * math.radians(30), height, width)
        is_rotated = (chosen == OPERATIONS.index("rotate"))[:, None, None]
        matrices = torch.where(is_rotated, rotations, matrices)
        return _kornia().geometry.transform.warp_affine(x, matrices[:, :2], (height, width), mode="nearest")

    def _recolour(self, name: str, x: Tensor, sign: Tensor) -> Tensor:
        enhance, factor = _kornia().enhance, 1 + 0.9 * self.strength * sign
        match name:
            case "brightness":
                return enhance.adjust_brightness_accumulative(x, factor)
            case "colour":
                return enhance.adjust_saturation_with_gray_subtraction(x, factor)
            case "contrast":
                return enhance.adjust_contrast_with_mean_subtraction(x, factor)
            case "sharpness":
                return enhance.sharpness(x, factor)
            case "posterize":
                return enhance.posterize(x, 8 - round(4 * self.strength))
            case "solarize":
                return enhance.solarize(x, 1 - self.strength)
            case "autocontrast":
                flat = x.amax((2, 3), keepdim=True) == x.amin((2, 3), keepdim=True)
                return torch.where(flat, x, enhance.normalize_min_max(x))
            case _:
                return enhance.equalize(x)


def _rotations(angles: Tensor, height: int, width: int) -> Tensor:
    """(N, 3, 3) rotations about the centre of the image, in pixel coordinates."""
    cos, sin = angles.cos(), angles.sin()
    x, y = (width - 1) / 2, (height - 1) / 2
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    rows = [cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y, zero, zero, one]
    return torch.stack(rows, dim=1).reshape(-1, 3, 3)


def _kornia() -> ModuleType:
    try:
        import kornia
    except ImportError as error:
        raise InvalidInputError(
            "RandAugment needs kornia: pip install 'onelip[augment]', or choose the augmentation crop-flip or none"
        ) from error
    return kornia


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

    For trainings of a few epochs shift-flip is crop-flip by up to 2 pixels in place of 4, and flip by none. `mean` is
    the mean colour of the images in [0, 1], which the borders get.
    """
    match name:
        case "none":
            return None
        case "flip" | "shift-flip" | "crop-flip":
            pixels = {"flip": 0, "shift-flip": 2, "crop-flip": 4}[name]
            return CropFlip(pixels, [round(255 * value) for value in mean])
        case "randaugment":
            return RandAugment()
        case _:
            known = ", ".join(get_args(AugmentationName))
            raise InvalidInputError(f"unknown augmentation {name!r}; known: {known}")
