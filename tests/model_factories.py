"""Models that are not ConvNet, built by functions that files and command lines can name."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

import onelip
from onelip.layers import AOLConv2d, AOLLinear, MaxMin


def sequential(num_classes: int, input_shape: Sequence[int]) -> nn.Module:
    """1-Lipschitz, in the manner of the README."""
    channels, height, width = input_shape
    features = 8 * (height // 2) * (width // 2)
    return nn.Sequential(AOLConv2d(channels, 8, 3, stride=2), MaxMin(), nn.Flatten(), AOLLinear(features, num_classes))


def of_classes(num_classes: int = 3) -> nn.Module:
    """For inputs of 3 x 8 x 8."""
    return sequential(num_classes, (3, 8, 8))


def without_arguments() -> nn.Module:
    """For the images of `tiny_data`."""
    return of_classes(4)


def plain(num_classes: int, input_shape: Sequence[int]) -> nn.Module:
    """Ordinary layers: a bound exists, but it is large."""
    channels, height, width = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * height * width, num_classes)
    )


def unbounded(num_classes: int, input_shape: Sequence[int]) -> nn.Module:
    """With a part that has no Lipschitz constant."""
    return nn.Sequential(Square(), plain(num_classes, input_shape))


def converted(num_classes: int, input_shape: Sequence[int]) -> nn.Module:
    """The plain model with layers of a method."""
    return onelip.convert(plain(num_classes, input_shape), method="aol", activation="maxmin")


def tied(features: int) -> nn.Module:
    """Two layers that share their weights."""
    layer = AOLLinear(features, features)
    return nn.Sequential(layer, MaxMin(), layer)


class Square(nn.Module):
    """x^2, whose slope grows without bound."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x
