"""Residual layers l(x) = x - W^T S relu(W x + b) with a diagonal S >= 0: the shape of CPL and SLL.

The Jacobian is I - W^T S D W with 0 <= D <= I diagonal. It is symmetric, and its eigenvalues lie in [-1, 1]
as soon as W^T S W <= 2 I, which is what the methods' choices of S ensure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.base import Transformed
from onelip.layers.fused import FusedLayer, PaddingMode
from onelip.layers.initialisation import initialise
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear, ParametrisedLayer
from onelip.layers.spatial import adjoint_kernel, same_convolution
from onelip.linalg.fourier import Size


def start_like_sll(layer: ParametrisedLayer) -> None:
    """SLL's start, which the comparison paper uses for CPL too: Xavier weights, a small random bias."""
    initialise(layer.weight, "xavier" if layer.init == "auto" else layer.init)
    if layer.bias is not None:
        bound = 1 / math.sqrt(layer.weight[0].numel())
        nn.init.uniform_(layer.bias, -bound, bound)


def residual_convolution(
    x: Tensor, kernel: Tensor, scale: Tensor, bias: Tensor | None, padding_mode: PaddingMode
) -> Tensor:
    """x - W^T diag(scale) relu(W x + b) with a convolution W of `kernel`."""
    hidden = F.relu(same_convolution(x, kernel, bias, padding_mode))
    weighted = adjoint_kernel(kernel * scale[:, None, None, None])
    return x - same_convolution(hidden, weighted, None, padding_mode)


def residual_product(x: Tensor, matrix: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """x - W^T diag(scale) relu(W x + b) with a matrix W."""
    return x - F.linear(F.relu(F.linear(x, matrix, bias)), (matrix * scale[:, None]).mT)


class ResidualConv2d(LipschitzConv2d):
    """Convolutional residual layer: transformed parameters {"kernel": (c, c, k, k), "scale": (c,)}."""

    square = True

    def reset_parameters(self) -> None:
        """Draw new weights and biases."""
        start_like_sll(self)

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """Two convolutions and an activation between them."""
        return residual_convolution(x, transformed["kernel"], transformed["scale"], self.bias, self.padding_mode)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """The same with fixed kernel and scale."""
        return FusedResidualConv2d(transformed, self.bias, self.padding_mode)


class ResidualLinear(LipschitzLinear):
    """Fully connected residual layer: transformed parameters {"matrix": (n, n), "scale": (n,)}."""

    square = True

    def reset_parameters(self) -> None:
        """Draw new weights and biases."""
        start_like_sll(self)

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """Two matrix products and an activation between them."""
        return residual_product(x, transformed["matrix"], transformed["scale"], self.bias)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """The same with fixed matrix and scale."""
        return FusedResidualLinear(transformed, self.bias)


class FusedResidualConv2d(FusedLayer):
    """A convolutional residual layer with fixed kernel and scale."""

    def __init__(self, transformed: Mapping[str, Tensor], bias: Tensor | None, padding_mode: PaddingMode) -> None:
        super().__init__(transformed, bias)
        self.padding_mode: PaddingMode = padding_mode

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions and an activation between them."""
        kernel, scale = self.get_parameter("kernel"), self.get_parameter("scale")
        return residual_convolution(x, kernel, scale, self.bias, self.padding_mode)


class FusedResidualLinear(FusedLayer):
    """A fully connected residual layer with fixed matrix and scale."""

    def forward(self, x: Tensor) -> Tensor:
        """Two matrix products and an activation between them."""
        return residual_product(x, self.get_parameter("matrix"), self.get_parameter("scale"), self.bias)
