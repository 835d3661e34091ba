"""Activations written with ReLU and sums only, for verifiers and runtimes that know nothing else.

max(a, b) = b + relu(a - b),   min(a, b) = a - relu(a - b),   |x| = relu(x) + relu(-x).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.blocks.activations import Abs, MaxMin
from onelip.proofs.bounded import BoundedModule, check_keeps_samples_apart, moves_entries
from onelip.proofs.layer_bound import LayerBound, relative_bound


class ReluMaxMin(BoundedModule):
    """`MaxMin` by one ReLU per pair."""

    repr_format = "dim={0.dim}"

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Maxima, then minima."""
        first, second = x.chunk(2, self.dim)
        lead = F.relu(first - second)
        return torch.cat([second + lead, first - lead], self.dim)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Two roundings per entry: of a - b, at most |a| + |b|, and of the sum."""
        check_keeps_samples_apart(self, self.dim, input_shape)
        return relative_bound(1.0, 4.0, math.prod(input_shape))


class ReluAbs(BoundedModule):
    """`Abs` by two ReLUs."""

    def forward(self, x: Tensor) -> Tensor:
        """One of the two terms is zero, so nothing is rounded."""
        return F.relu(x) + F.relu(-x)

    bound = moves_entries


def relu_form(module: nn.Module) -> nn.Module | None:
    """An activation written by ReLUs, None where there is no such form here; other modules as they are."""
    if type(module) is MaxMin:
        return ReluMaxMin(module.dim)
    return ReluAbs() if type(module) is Abs else None
