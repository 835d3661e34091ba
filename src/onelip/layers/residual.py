"""Residual layers l(x) = x - W^T relu(W x + b): the shape of CPL and SLL.

The Jacobian is I - W^T D W with 0 <= D <= I diagonal. It is symmetric, and its eigenvalues lie in [-1, 1] as soon as
W^T W <= 2 I. The methods' layers are x - V^T S relu(V x + b) with a diagonal S >= 0. Because relu(s u) = s relu(u) for
s >= 0, that is the same with W = S^(1/2) V and the bias S^(1/2) b: nothing has to be multiplied by S in the pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.base import Transformed
from onelip.layers.convolution import residual_convolution
from onelip.layers.fused import FusedLayer, PaddingMode
from onelip.layers.shapes import LipschitzLinear
from onelip.layers.spectral_conv import (
    KernelOrFrequencies,
    check_size,
    image_size,
    spectral_convolution,
)
from onelip.linalg.fourier import Size, pixels_outermost


def residual_product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """x - W^T relu(W x + b) with a matrix W."""
    return x - F.linear(F.relu(F.linear(x, matrix, bias)), matrix.mT)


def apply_residual(
    x: Tensor, transformed: Mapping[str, Tensor], bias: Tensor | None, padding_mode: PaddingMode
) -> Tensor:
    """x - W^T relu(W x + b) with a convolution W, given as a kernel or by its frequency matrices."""
    if "kernel" in transformed:
        return residual_convolution(x, transformed["kernel"], bias, padding_mode)
    x = pixels_outermost(x)
    hidden = F.relu(spectral_convolution(x, transformed, bias))
    return x - spectral_convolution(hidden, transformed, adjoint=True)


def scaled_bias(bias: Tensor | None, root: Tensor) -> Tensor | None:
    """S^(1/2) b."""
    return None if bias is None else root * bias


class ResidualConv2d(KernelOrFrequencies):
    """Convolutional residual layer: `transform_tensors` gives {"kernel": W (c, c, k, k), "root": S^(1/2) (c,)}."""

    square = True

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """Two convolutions and an activation between them."""
        return apply_residual(x, transformed, scaled_bias(self.bias, transformed["root"]), self.padding_mode)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """The same with a fixed kernel and bias."""
        return FusedResidualConv2d(transformed, self.bias, self.padding_mode)


class ResidualLinear(LipschitzLinear):
    """Fully connected residual layer: transformed parameters {"matrix": W (n, n), "root": S^(1/2) (n,)}."""

    square = True

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """Two matrix products and an activation between them."""
        return residual_product(x, transformed["matrix"], scaled_bias(self.bias, transformed["root"]))

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """The same with a fixed matrix and bias."""
        return FusedResidualLinear(transformed, self.bias)


class FusedResidualConv2d(FusedLayer):
    """A convolutional residual layer with a fixed kernel, or fixed frequency matrices for one image size, and bias."""

    def __init__(self, transformed: Mapping[str, Tensor], bias: Tensor | None, padding_mode: PaddingMode) -> None:
        tensors = {name: tensor for name, tensor in transformed.items() if name != "root"}
        super().__init__(tensors, scaled_bias(bias, transformed["root"]))
        self.padding_mode: PaddingMode = padding_mode
        self.size = image_size(transformed, (1, 1)) if "matrices" in transformed else None

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions and an activation between them."""
        if self.size is not None:
            check_size(self, x, self.size)
        return apply_residual(x, self.tensors(), self.bias, self.padding_mode)


class FusedResidualLinear(FusedLayer):
    """A fully connected residual layer with a fixed matrix and bias."""

    def __init__(self, transformed: Mapping[str, Tensor], bias: Tensor | None) -> None:
        super().__init__({"matrix": transformed["matrix"]}, scaled_bias(bias, transformed["root"]))

    def forward(self, x: Tensor) -> Tensor:
        """Two matrix products and an activation between them."""
        return residual_product(x, self.get_parameter("matrix"), self.bias)
