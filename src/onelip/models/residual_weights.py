"""Layers whose weight is the identity plus a small, scaled part: I + gamma * P / sqrt(depth), then constrained.

LiResNet and BRONet write their layers so. The identity is what keeps signals alive through many layers; gamma, one
number per output, lets a row leave it. The methods constrain the sum as they do any weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from onelip.layers.contract import Request
from onelip.layers.layer import LipschitzLayer
from onelip.layers.methods.bro import BROConv2d
from onelip.layers.methods.cholesky import CholeskyConv2d, CholeskyLinear
from onelip.layers.methods.spectral import SpectralConv2d


class _ResidualWeight(LipschitzLayer):
    """`weight` is the part P; `scale` is depth^(-1/2)."""

    gamma: nn.Parameter
    scale: float = 1.0

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Gamma too."""
        shapes = super().tensor_shapes()
        return {**shapes, "gamma": shapes["weight"][:1]}

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """P of small normal numbers, gamma = 1."""
        nn.init.normal_(tensors["weight"], std=1 / (self.core_out * math.prod(tensors["weight"].shape[2:])))
        nn.init.ones_(tensors["gamma"])
        if "bias" in tensors:
            nn.init.zeros_(tensors["bias"])

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Any:
        """The method's, of I + gamma P scale."""
        part = tensors["weight"]
        rows, columns, *taps = self.tensor_shapes()["weight"]
        identity = torch.eye(rows, columns, dtype=part.dtype, device=part.device)
        if taps:  # at the centre tap
            identity = nn.functional.pad(
                identity[..., None, None], [side // 2 for side in reversed(taps) for _ in "ab"]
            )
        gamma = tensors["gamma"].reshape(*tensors["gamma"].shape, 1, *(1 for _ in taps))
        return super().transform_tensors({**tensors, "weight": identity + gamma * part * self.scale}, request)


class ResidualSpectralConv2d(_ResidualWeight, SpectralConv2d):
    """LiResNet's convolution, divided by its norm."""


class ResidualBROConv2d(_ResidualWeight, BROConv2d):
    """BRONet's convolution."""


class ResidualCholeskyConv2d(_ResidualWeight, CholeskyConv2d):
    """Orthogonalised by Cholesky at every frequency."""


class ResidualCholeskyLinear(_ResidualWeight, CholeskyLinear):
    """The dense layers of both networks."""


RESIDUAL_CONVOLUTIONS = {
    "spectral": ResidualSpectralConv2d,
    "bro": ResidualBROConv2d,
    "cholesky": ResidualCholeskyConv2d,
}
"""By method."""
