"""Residual layers l(x) = x - W^T relu(W x + b): the shape of CPL and SLL.

The Jacobian is I - W^T D W with 0 <= D <= I diagonal. It is symmetric, and its eigenvalues lie in [-1, 1] as soon as
W^T W <= 2 I. The methods' layers are x - V^T S relu(V x + b) with a diagonal S >= 0. Because relu(s u) = s relu(u) for
s >= 0, that is the same with W = S^(1/2) V and the bias S^(1/2) b: nothing has to be multiplied by S in the pass.

For two inputs, relu(u) - relu(v) = D (u - v) with a diagonal 0 <= D <= I, so the difference of the outputs is
(I - W^T D W)(x - y). With lambda = ||W||^2 its eigenvalues lie in [1 - lambda, 1]: for every W, deployed in floats, the
constant is at most max(1, lambda - 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.base import Transformed
from onelip.layers.convolution import residual_convolution
from onelip.layers.fused import FusedLayer, PaddingMode
from onelip.layers.shapes import LipschitzLinear
from onelip.layers.spectral_conv import (
    KernelOrFrequencies,
    check_size,
    dft_of,
    image_size,
    spectral_convolution,
)
from onelip.linalg.fourier import Size, pixels_outermost
from onelip.linalg.layer_bound import Arithmetic, LayerBound, RoundingError, added_to_input, compose
from onelip.linalg.linear_bounds import convolution_bound, matrix_bound, spectral_bound
from onelip.linalg.proven import SAFETY
from onelip.linalg.proven_convolution import same_convolution_of


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


def residual_bound(there: LayerBound, back: LayerBound) -> LayerBound:
    """x - W^T relu(W x + b), from the bounds of W x + b and W^T.

    The product of root and bias is rounded in the pass, by u each: less than the error of adding it.
    """
    branch = compose(there, back)
    norm, inner = there.lipschitz, branch.rounding
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error = inner(arithmetic)
        return RoundingError(error.slope, 2 * error.constant)

    lipschitz = max(1.0, norm * norm * SAFETY - 1) if math.isfinite(norm) else math.inf
    return added_to_input(replace(branch, rounding=rounding), lipschitz)


def residual_convolution_bound(
    transformed: Mapping[str, Tensor], bias: Tensor | None, size: Size, padding_mode: PaddingMode
) -> LayerBound:
    """`apply_residual` on h x w images.

    The program of W^T uses the transposes of the very matrices of W, or the same taps. W is square, so that the
    bound of W, which counts terms and outputs, is one of W^T too.
    """
    if "kernel" in transformed:
        there = convolution_bound(same_convolution_of(transformed["kernel"], padding_mode), size, bias)
    else:
        there = spectral_bound(transformed["matrices"], dft_of(transformed), bias)
    return residual_bound(there, replace(there, offset=0.0))


def residual_product_bound(matrix: Tensor, bias: Tensor | None, input_shape: tuple[int, ...]) -> LayerBound:
    """`residual_product` on every vector of the input."""
    rows = math.prod(input_shape[:-1])
    return residual_bound(matrix_bound(matrix, bias, rows), matrix_bound(matrix.mT, None, rows))


def exact_scaled_bias(bias: Tensor | None, root: Tensor) -> Tensor | None:
    """S^(1/2) b in float64."""
    return None if bias is None else root.detach().double() * bias.detach().double()


class ResidualConv2d(KernelOrFrequencies):
    """Convolutional residual layer: `transform_tensors` gives {"kernel": W (c, c, k, k), "root": S^(1/2) (c,)}."""

    square = True

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """Two convolutions and an activation between them."""
        return apply_residual(x, transformed, scaled_bias(self.bias, transformed["root"]), self.padding_mode)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """max(1, ||W||^2 - 1)."""
        size = input_shape[-2], input_shape[-1]
        transformed = self.deployed(size)
        bias = exact_scaled_bias(self.bias, transformed["root"])
        return residual_convolution_bound(transformed, bias, self.strided(size), self.padding_mode)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """The same with a fixed kernel and bias."""
        return FusedResidualConv2d(transformed, self.bias, self.padding_mode)


class ResidualLinear(LipschitzLinear):
    """Fully connected residual layer: transformed parameters {"matrix": W (n, n), "root": S^(1/2) (n,)}."""

    square = True

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """Two matrix products and an activation between them."""
        return residual_product(x, transformed["matrix"], scaled_bias(self.bias, transformed["root"]))

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """max(1, ||W||^2 - 1)."""
        transformed = self.deployed()
        bias = exact_scaled_bias(self.bias, transformed["root"])
        return residual_product_bound(transformed["matrix"], bias, input_shape)

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

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """max(1, ||W||^2 - 1)."""
        size = input_shape[-2], input_shape[-1]
        return residual_convolution_bound(self.tensors(), self.bias, size, self.padding_mode)


class FusedResidualLinear(FusedLayer):
    """A fully connected residual layer with a fixed matrix and bias."""

    def __init__(self, transformed: Mapping[str, Tensor], bias: Tensor | None) -> None:
        super().__init__({"matrix": transformed["matrix"]}, scaled_bias(bias, transformed["root"]))

    def forward(self, x: Tensor) -> Tensor:
        """Two matrix products and an activation between them."""
        return residual_product(x, self.get_parameter("matrix"), self.bias)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """max(1, ||W||^2 - 1)."""
        return residual_product_bound(self.get_parameter("matrix"), self.bias, input_shape)
