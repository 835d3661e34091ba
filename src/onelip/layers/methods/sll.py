"""SLL: SDP-based Lipschitz layers (Araujo et al., 2023).

l(x) = x - 2 W Q^(-2) D^2 relu(W^T x + b), Q = exp(q) a learnable positive diagonal and D the AOL rescaling of
P = W Q^(-1). Because ||P D|| <= 1, W Q^(-2) D^2 W^T = (P D)(P D)^T <= I, and the Jacobian I - 2 (P D) J (P D)^T with
0 <= J <= I has its eigenvalues in [-1, 1]. In the code W^T is the first convolution, `weight`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from onelip.layers.contract import Request, Traits
from onelip.layers.initialisation import RESIDUAL_INITIALISATIONS, initialise_residual
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operators import Kernel, Matrix
from onelip.layers.registry import MethodInfo
from onelip.layers.residual import ResidualConv2d, ResidualLinear, ResidualMap
from onelip.linalg.rescaling import aol_kernel_scale, aol_scale

LARGEST_LOG_Q = 12.0
"""Beyond e^12 a ratio of two entries of Q loses all digits of float32; the clamp keeps Q and 1/Q finite."""

PUBLISHED_EPSILON = 1e-6
"""A number that the published code adds to the absolute value of q, and to the sums by which it divides."""

LARGEST_RATIO = 1e18
"""Largest D / Q: a finite float32, and a smaller one can only shrink the residual branch."""


class _LearnableDiagonal(LipschitzLayer):
    traits = Traits(
        square=True, initialisations=RESIDUAL_INITIALISATIONS, holds_for_volumes=True, zero_channels_stay_zero=True
    )

    q: nn.Parameter

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """The logarithm q of the diagonal of Q too."""
        return {**super().tensor_shapes(), "q": (self.core_out,)}

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """Draw the weight; Q starts as the identity, or as published: the inverse of absolute values of normal numbers.

        (The published code divides where Q multiplies: what it calls q is exp(-q) here, but for the sign.)
        """
        initialise_residual(tensors["weight"], tensors.get("bias"), self.init)
        nn.init.zeros_(tensors["q"])
        if self.init == "published":
            tensors["q"].copy_(-torch.randn_like(tensors["q"]).abs().add(PUBLISHED_EPSILON).log())


def inverse_diagonal(q: Tensor) -> Tensor:
    """Q^(-1) from the logarithm q of its entries."""
    return torch.exp(-q.clamp(-LARGEST_LOG_Q, LARGEST_LOG_Q))


def residual_root(aol: Tensor, inverse: Tensor) -> Tensor:
    """sqrt(2) D / Q."""
    return math.sqrt(2) * (aol * inverse).clamp(max=LARGEST_RATIO)


class SLLConv2d(_LearnableDiagonal, ResidualConv2d):
    """Convolutional SLL layer, for every kernel size."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> ResidualMap:
        """AOL on W Q^(-1), whose input channels are the hidden units."""
        kernel, inverse = tensors["weight"], inverse_diagonal(tensors["q"])
        scaled = (kernel * inverse[..., :, None, None, None]).transpose(-4, -3)  # the order of taps does not matter
        root = residual_root(aol_kernel_scale(scaled), inverse)
        return ResidualMap(Kernel(kernel * root[..., :, None, None, None], self.padding_mode), root)


class SLLLinear(_LearnableDiagonal, ResidualLinear):
    """Fully connected SLL layer."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> ResidualMap:
        """AOL on W Q^(-1), whose columns are the hidden units."""
        matrix, inverse = tensors["weight"], inverse_diagonal(tensors["q"])
        scaled = (matrix * inverse[..., :, None]).mT
        root = residual_root(aol_scale(scaled), inverse)
        return ResidualMap(Matrix(matrix * root[..., :, None]), root)


METHOD = MethodInfo(
    key="sll",
    guarantee="bounded",
    linear=False,
    conv=SLLConv2d,
    linear_layer=SLLLinear,
    training_approximation="sums of float32 autocorrelations, those of wide 3 x 3 kernels from 18 products",
)
