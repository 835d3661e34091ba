"""Cholesky: orthogonalisation by a triangular factor (Hu, Leino, Wang and Fredrikson, 2024), one at every frequency.

W = L^(-1) X with L L^H = X X^H + eps I. Then W W^H = I - eps L^(-1) L^(-H) <= I: a contraction for every X, with
singular values sigma / sqrt(sigma^2 + eps), near 1 unless X is nearly singular. A layer with more outputs than inputs
is the transpose, X L^(-H) with L L^H = X^H X + eps I.

eps is relative to the square of a proven bound of the norm of X, so that the layer does not see its scale, and no
smaller than the rounding errors of float32. It is the same number in training and in evaluation, whatever the
precision. The start is the identity with a little noise, where W is orthogonal up to eps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from onelip.layers.contract import Request, Traits
from onelip.layers.frequency_conv import FrequencyConv2d
from onelip.layers.kernel_layers import MatrixLinear
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operators import Matrix
from onelip.layers.registry import MethodInfo
from onelip.linalg.fourier import Size, packed_values
from onelip.linalg.triangular import ridge_orthogonalise

START_NOISE = 0.01
"""Norm of the random part of a row at the start, relative to that of the identity's row."""


class _ResidualStart(LipschitzLayer):
    """A layer that starts near the identity."""

    traits = Traits(keeps_directions=True)

    def default_init(self) -> str:
        """The identity, as far as the layer is square."""
        return "identity"

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """By default I plus small noise, which tells equal layers apart; the bias is zero."""
        super().initialise(tensors)
        if self.init == "auto":
            weight = tensors["weight"]
            weight.add_(torch.randn_like(weight), alpha=START_NOISE / math.sqrt(weight[0].numel()))


class CholeskyConv2d(_ResidualStart, FrequencyConv2d):
    """Convolution whose kernel is orthogonalised at every frequency."""

    def constrain(self, matrices: Tensor, request: Request) -> Tensor:
        """L^(-1) X."""
        return ridge_orthogonalise(matrices)

    def packed_matrices(
        self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor], request: Request
    ) -> Tensor | None:
        """The orthogonal matrices in training, without what torch would keep of it."""
        return packed_values(kernel, torus, ridge_orthogonalise)[0] if request.training else None


class CholeskyLinear(_ResidualStart, MatrixLinear):
    """Linear layer with an orthogonalised matrix."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """L^(-1) X."""
        return Matrix(ridge_orthogonalise(tensors["weight"]))


METHOD = MethodInfo(
    key="cholesky",
    guarantee="bounded",
    conv=CholeskyConv2d,
    linear_layer=CholeskyLinear,
    training_approximation="factorisations of float32 Gram matrices",
    training_error=3e-4,
)
