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

from onelip.layers.frequency_conv import FrequencyConv2d
from onelip.layers.info import Complexity, MethodInfo
from onelip.layers.shapes import ParametrisedLayer
from onelip.layers.spatial import MatrixLinear
from onelip.layers.transformed import Matrix
from onelip.linalg.fourier import Size
from onelip.linalg.packed_functions import packed_values
from onelip.linalg.triangular import RidgeQuotients, ridge_orthogonalise

START_NOISE = 0.01
"""Norm of the random part of a row at the start, relative to that of the identity's row."""


class _ResidualStart(ParametrisedLayer):
    """A layer that starts near the identity."""

    keeps_directions = True

    def default_init(self) -> str:
        """The identity, as far as the layer is square."""
        return "identity"

    def start(self) -> None:
        """By default I plus small noise, which tells equal layers apart; the bias is zero."""
        super().start()
        if self.init == "auto":
            with torch.no_grad():
                self.weight.add_(torch.randn_like(self.weight), alpha=START_NOISE / math.sqrt(self.weight[0].numel()))


class CholeskyConv2d(_ResidualStart, FrequencyConv2d):
    """Convolution whose kernel is orthogonalised at every frequency."""

    def constrain(self, matrices: Tensor) -> Tensor:
        """L^(-1) X."""
        return ridge_orthogonalise(matrices)

    def packed_matrices(self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """The same in training, without what torch would keep of it."""
        return packed_values(RidgeQuotients(), kernel, torus)[0] if self.training else None


class CholeskyLinear(_ResidualStart, MatrixLinear):
    """Linear layer with an orthogonalised matrix."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Matrix:
        """L^(-1) X."""
        return Matrix(ridge_orthogonalise(tensors["weight"]))


METHOD = MethodInfo(
    key="cholesky",
    title="Cholesky",
    paper="A Recipe for Improved Certifiable Robustness",
    year=2024,
    link="https://arxiv.org/abs/2310.02513",
    guarantee="bounded",
    linear=True,
    conv=CholeskyConv2d,
    linear_layer=CholeskyLinear,
    learning_rate=0.05,
    training_approximation="factorisations of float32 Gram matrices",
    training_error=3e-4,
    published=Complexity(
        input_operations="FFTs & MVs",
        input_macs="b*s**2*c**2",
        input_memory="5*b*s**2*c/2",
        parameter_operations="FFTs, MM, Cholesky & solve",
        parameter_macs="5*s**2*c**3/6",
        parameter_memory="2*s**2*c**2",
    ),
    ours=Complexity(
        input_operations="real DFTs & MVs",
        input_macs="2*b*s**2*c**2 + 4*b*s**3*c",
        input_memory="2*b*s**2*c",
        parameter_operations="real DFT, MMs, Cholesky & solve",
        parameter_macs="15*s**2*c**3/2",
        parameter_memory="s**2*c**2",
    ),
)
