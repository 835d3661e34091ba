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
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional as F

from onelip.layers.convolution import adjoint_kernel, residual_convolution
from onelip.layers.frequency_conv import CheapestFormConv2d
from onelip.layers.hidden_passes import residual_branch
from onelip.layers.shapes import LipschitzLinear
from onelip.layers.transformed import Frequencies, Kernel, Matrix, Transformed, at_frequency_zero, check_size
from onelip.layers.volume_kernel import VolumeKernel
from onelip.linalg.fourier import Size, pixels_outermost, to_frequency, torus_of
from onelip.linalg.layer_bound import Arithmetic, LayerBound, RoundingError, added_to_input, compose
from onelip.linalg.linear_bounds import spectral_pair
from onelip.linalg.measured_rounding import Product, measured, minus, moving
from onelip.linalg.proven import SAFETY


@dataclass(frozen=True)
class ResidualMap(Transformed):
    """x -> x - W^T relu(W x + S^(1/2) b), with a square W and root = S^(1/2), (c,)."""

    weight: Matrix | Kernel | Frequencies | VolumeKernel
    root: Tensor

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """W, an activation, W^T."""
        weight, bias = self.weight, self._shift(bias)
        if isinstance(weight, Matrix):
            return x - F.linear(F.relu(F.linear(x, weight.matrix, bias)), weight.matrix.mT)
        if isinstance(weight, Kernel):
            return residual_convolution(x, weight.kernel, bias, weight.padding_mode)
        if isinstance(weight, VolumeKernel):
            return x - weight.adjoint(F.relu(weight.apply(x, bias)))
        check_size(x, weight.image)
        x, dft, torus = pixels_outermost(x), weight.dft, torus_of(weight.dft)
        return x - residual_branch(to_frequency(x, dft), weight.matrices, at_frequency_zero(bias, torus), torus, dft)

    def _shift(self, bias: Tensor | None) -> Tensor | None:
        return None if bias is None else self.root * bias

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """max(1, ||W||^2 - 1).

        The program of W^T uses the transposes of the very matrices of W, or the same taps. W is square, so that the
        bound of W, which counts terms and outputs, is one of W^T too. The product of root and bias is rounded in the
        pass, by u each: less than the error of adding it.
        """
        there, back = self._products(input_shape, None if bias is None else self.root.double() * bias.double())
        branch = compose(there, moving(F.relu), back)
        norm, inner = there.lipschitz, branch.rounding
        assert inner is not None

        def rounding(arithmetic: Arithmetic) -> RoundingError:
            error = inner(arithmetic)
            return RoundingError(error.slope, 2 * error.constant)

        lipschitz = max(1.0, norm * norm * SAFETY - 1) if math.isfinite(norm) else math.inf
        return minus(branch, added_to_input(replace(branch, rounding=rounding), lipschitz))

    def _products(self, input_shape: tuple[int, ...], shift: Tensor | None) -> tuple[LayerBound, LayerBound]:
        """Bounds of W with its bias, which comes rounded, and of W^T."""
        weight = self.weight
        if isinstance(weight, Frequencies):
            return spectral_pair(weight.matrices, weight.dft, shift)  # whose biases may be rounded four times
        there = weight.bound(input_shape, shift)
        if isinstance(weight, Matrix):
            product, adjoint = Product(F.linear, weight.matrix, shift), Product(F.linear, weight.matrix.mT)
        else:
            product = weight.product(shift)
            adjoint = (
                weight.adjoint_product()
                if isinstance(weight, VolumeKernel)
                else replace(weight, kernel=adjoint_kernel(weight.kernel)).product(None)
            )
        return measured(there, product, bias_roundings=1), measured(replace(there, offset=0.0), adjoint)

    def by_frequency(self, size: Size) -> ResidualMap:
        """The same with the frequency matrices of W."""
        assert isinstance(self.weight, Kernel)
        return replace(self, weight=self.weight.by_frequency(size))


class ResidualConv2d(CheapestFormConv2d):
    """Convolutional residual layer: `transform_tensors` gives a `ResidualMap` with a `Kernel`."""

    square = True


class ResidualLinear(LipschitzLinear):
    """Fully connected residual layer: `transform_tensors` gives a `ResidualMap` with a `Matrix`."""

    square = True
