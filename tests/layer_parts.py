"""One of every part that networks need besides layers, for images of four channels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from onelip.layers import (
    Abs,
    AdaptiveL2NormPool2d,
    BatchCentering,
    BatchLipNorm,
    ConvexSum,
    FlipAverage,
    FullSort,
    GroupSort,
    Householder,
    L2NormPool2d,
    LayerCentering,
    LipschitzConcat,
    LipschitzPReLU,
    LipschitzResidual,
    MaxMin,
    NActivation,
    ScaledAdaptiveAvgPool2d,
    ScaledAvgPool2d,
    ScaledMaxPool2d,
    UnitRowsLinear,
)


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sum, self.first, self.second = ConvexSum(0.3), MaxMin(), Abs()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sum(self.first(x), self.second(x))


PARTS: dict[str, Callable[[], nn.Module]] = {
    "Abs": Abs,
    "AdaptiveL2NormPool2d": lambda: AdaptiveL2NormPool2d((2, 1)),
    "BatchCentering": lambda: BatchCentering(4),
    "BatchLipNorm": lambda: BatchLipNorm(4),
    "ConvexSum": Sum,
    "FlipAverage": lambda: FlipAverage(MaxMin()),
    "FullSort": FullSort,
    "GroupSort": lambda: GroupSort(4),
    "Householder": lambda: Householder(4),
    "L2NormPool2d": lambda: L2NormPool2d(2),
    "LayerCentering": LayerCentering,
    "LipschitzConcat": lambda: LipschitzConcat(MaxMin(), Abs()),
    "LipschitzPReLU": LipschitzPReLU,
    "LipschitzResidual": lambda: LipschitzResidual(MaxMin()),
    "MaxMin": MaxMin,
    "NActivation": lambda: NActivation(4),
    "ScaledAdaptiveAvgPool2d": lambda: ScaledAdaptiveAvgPool2d(2),
    "ScaledAvgPool2d": lambda: ScaledAvgPool2d(2),
    "ScaledMaxPool2d": lambda: ScaledMaxPool2d(3, 1, 1),
    "UnitRowsLinear": lambda: nn.Sequential(nn.Flatten(), UnitRowsLinear(64, 8)),
}
