"""Ordinary networks, written as people write them: a ResNet with BatchNorm and a VGG; and a function as a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += identity
        return self.relu(y)


class ResNet(nn.Module):
    """The layers of ResNet-18 with `width` channels in place of 64."""

    def __init__(self, width: int = 8, num_classes: int = 10, blocks: tuple[int, ...] = (2, 2, 2, 2)) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, inputs = [], width
        for stage, count in enumerate(blocks):
            outputs = width << stage
            stages.append(
                nn.Sequential(
                    *(
                        BasicBlock(inputs if i == 0 else outputs, outputs, 2 if i == 0 and stage else 1)
                        for i in range(count)
                    )
                )
            )
            inputs = outputs
        self.layers = nn.ModuleList(stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for layer in self.layers:
            x = layer(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):
    def __init__(self, width: int = 8, num_classes: int = 10) -> None:
        super().__init__()
        modules: list[nn.Module] = []
        inputs = 3
        for outputs in (width, "pool", 2 * width, "pool", 4 * width, 4 * width, "pool"):
            if isinstance(outputs, str):
                modules.append(nn.MaxPool2d(2, 2))
            else:
                modules += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = outputs
        self.features = nn.Sequential(*modules)
        self.hidden = nn.Linear(inputs * 16, 32)
        self.dropout = nn.Dropout(0.1)
        self.scores = nn.Linear(32, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x).flatten(1)
        return self.scores(self.dropout(F.relu(self.hidden(x))))


class Calls(nn.Module):
    """A model that consists of one function, in float32."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)
