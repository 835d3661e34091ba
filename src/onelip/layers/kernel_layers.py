"""Layers that are one plain convolution or matrix product after their parameter transformation.

A circular convolution has norm max_f ||K^(f)|| over the frequencies of its torus. A zero-padded one is a
restriction of the circular one on a torus larger by k - 1: embedding and cropping have norm 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from onelip.layers.contract import Request
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.fused import frozen_linear
from onelip.layers.linear import LipschitzLinear
from onelip.layers.operators import FirstRows, Matrix, Operator
from onelip.linalg.fourier import Size
from onelip.linalg.polar import polar_rows, training_polar_factor, trains_in_single


class KernelConv2d(LipschitzConv2d):
    """A convolution that `transform_tensors` makes one `Kernel` of, which may be applied frequency by frequency."""

    keeps_taps = True
    has_frequency_form = True


class MatrixLinear(LipschitzLinear):
    """A linear layer that `transform_tensors` makes one `Matrix` of."""

    def choose_form(self, operator: Operator, request: Request) -> Operator:
        """The first rows alone, where no others are asked for."""
        assert isinstance(operator, Matrix)
        if request.rows is None:
            return operator
        return FirstRows(operator.matrix[..., : request.rows, :], state=operator.state)

    def fuse_core(self, operator: Operator, size: Size | None) -> nn.Module:
        """A plain linear layer."""
        assert isinstance(operator, Matrix)
        return frozen_linear(operator.matrix, self.bias)


class PolarLinear(MatrixLinear):
    """A linear layer with the polar factor of its matrix."""

    def orthonormal(self, matrix: Tensor, request: Request) -> Tensor:
        """The polar factor, or the rows of it that are asked for, where training finds them faster."""
        rows = request.rows
        if rows is None or matrix.shape[-2] != matrix.shape[-1] or not trains_in_single(matrix, request.approximate):
            return training_polar_factor(matrix, request.approximate)
        return polar_rows(matrix, rows)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """Polar factor."""
        return Matrix(self.orthonormal(tensors["weight"], request))
