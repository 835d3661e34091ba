"""Residual layers l(x) = x - W^T relu(W x + b): the shape of CPL and SLL.

The Jacobian is I - W^T D W with 0 <= D <= I diagonal. It is symmetric, and its eigenvalues lie in [-1, 1] as soon as
W^T W <= 2 I. The methods' layers are x - V^T S relu(V x + b) with a diagonal S >= 0. Because relu(s u) = s relu(u) for
s >= 0, that is the same with W = S^(1/2) V and the bias S^(1/2) b: nothing has to be multiplied by S in the pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional as F

from onelip.layers.branch_gradients import residual_branch
from onelip.layers.contract import Traits
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.linear import LipschitzLinear
from onelip.layers.operators import Frequencies, Kernel, Matrix, Operator, at_frequency_zero, check_size
from onelip.layers.volume_kernel import VolumeKernel
from onelip.linalg.convolution import residual_convolution
from onelip.linalg.fourier import Size, pixels_outermost, to_frequency, torus_of


@dataclass(frozen=True)
class ResidualMap(Operator):
    """x -> x - W^T relu(W x + S^(1/2) b), with a square W and root = S^(1/2), (c,)."""

    weight: Matrix | Kernel | Frequencies | VolumeKernel
    root: Tensor

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """W, an activation, W^T."""
        weight, bias = self.weight, self._shift(bias)
        if isinstance(weight, Kernel):
            return residual_convolution(x, weight.kernel, bias, weight.padding_mode)
        if isinstance(weight, Matrix):
            branch = F.linear(F.relu(F.linear(x, weight.matrix, bias)), weight.matrix.mT)
        elif isinstance(weight, VolumeKernel):
            branch = weight.adjoint(F.relu(weight.apply(x, bias)))
        else:
            check_size(x, weight.image)
            x, dft, torus = pixels_outermost(x), weight.dft, torus_of(weight.dft)
            constant = at_frequency_zero(bias, torus)
            branch = residual_branch(to_frequency(x, dft), weight.matrices, constant, torus, dft)
        return x.to(branch.dtype) - branch  # the narrow type under autocast, as torch's layers

    def _shift(self, bias: Tensor | None) -> Tensor | None:
        return None if bias is None else self.root * bias

    def by_frequency(self, size: Size) -> ResidualMap:
        """The residual map with the frequency matrices of W."""
        assert isinstance(self.weight, Kernel)
        return replace(self, weight=self.weight.by_frequency(size))


class ResidualConv2d(LipschitzConv2d):
    """Convolutional residual layer: `transform_tensors` gives a `ResidualMap` with a `Kernel`."""

    traits = Traits(square=True)
    has_frequency_form = True


class ResidualLinear(LipschitzLinear):
    """Fully connected residual layer: `transform_tensors` gives a `ResidualMap` with a `Matrix`."""

    traits = Traits(square=True)
