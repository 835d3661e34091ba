"""SLL: SDP-based Lipschitz layers (Araujo et al., 2023).

l(x) = x - 2 W Q^(-2) D^2 relu(W^T x + b), Q = exp(q) a learnable positive diagonal and D the AOL rescaling of
P = W Q^(-1). Because ||P D|| <= 1, W Q^(-2) D^2 W^T = (P D)(P D)^T <= I, and the Jacobian I - 2 (P D) J (P D)^T with
0 <= J <= I has its eigenvalues in [-1, 1]. In the code W^T is the first convolution, `weight`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from onelip.layers.info import Complexity, MethodInfo, PublishedSetting
from onelip.layers.initialisation import RESIDUAL_INITIALISATIONS, start_residual
from onelip.layers.residual import ResidualConv2d, ResidualLinear, ResidualMap
from onelip.layers.shapes import ParametrisedLayer
from onelip.layers.transformed import Kernel, Matrix
from onelip.linalg.fourier import Size
from onelip.linalg.rescaling import aol_kernel_scale, aol_scale

LARGEST_LOG_Q = 12.0
"""Beyond e^12 a ratio of two entries of Q loses all digits of float32; the clamp keeps Q and 1/Q finite."""

PUBLISHED_EPSILON = 1e-6
"""What the published code adds to the absolute value of q, and to the sums by which it divides."""

LARGEST_RATIO = 1e18
"""Largest D / Q: a finite float32, and a smaller one can only shrink the residual branch."""


class _LearnableDiagonal(ParametrisedLayer):
    initialisations = RESIDUAL_INITIALISATIONS

    q: nn.Parameter

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight, bias and the logarithm q of the diagonal of Q."""
        super().create_parameters(bias, factory)
        self.q = nn.Parameter(torch.empty(self.core_out, **factory))

    def start(self) -> None:
        """Draw the weight; Q starts as the identity, or as published: the inverse of absolute values of normal numbers.

        (The published code divides where Q multiplies: what it calls q is exp(-q) here, but for the sign.)
        """
        start_residual(self.weight, self.bias, self.init)
        nn.init.zeros_(self.q)
        if self.init == "published":
            with torch.no_grad():
                self.q.copy_(-torch.randn_like(self.q).abs().add(PUBLISHED_EPSILON).log())


def inverse_diagonal(q: Tensor) -> Tensor:
    """Q^(-1) from the logarithm q of its entries."""
    return torch.exp(-q.clamp(-LARGEST_LOG_Q, LARGEST_LOG_Q))


def residual_root(aol: Tensor, inverse: Tensor) -> Tensor:
    """sqrt(2) D / Q."""
    return math.sqrt(2) * (aol * inverse).clamp(max=LARGEST_RATIO)


class SLLConv2d(_LearnableDiagonal, ResidualConv2d):
    """Convolutional SLL layer, for every kernel size."""

    zero_channels_stay_zero = True
    holds_for_volumes = True

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> ResidualMap:
        """AOL on W Q^(-1), whose input channels are the hidden units."""
        kernel, inverse = tensors["weight"], inverse_diagonal(tensors["q"])
        scaled = (kernel * inverse[..., :, None, None, None]).transpose(-4, -3)  # the order of taps does not matter
        root = residual_root(aol_kernel_scale(scaled), inverse)
        return ResidualMap(Kernel(kernel * root[..., :, None, None, None], self.padding_mode), root)


class SLLLinear(_LearnableDiagonal, ResidualLinear):
    """Fully connected SLL layer."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> ResidualMap:
        """AOL on W Q^(-1), whose columns are the hidden units."""
        matrix, inverse = tensors["weight"], inverse_diagonal(tensors["q"])
        scaled = (matrix * inverse[..., :, None]).mT
        root = residual_root(aol_scale(scaled), inverse)
        return ResidualMap(Matrix(matrix * root[..., :, None]), root)


METHOD = MethodInfo(
    key="sll",
    title="SLL",
    paper="A Unified Algebraic Perspective on Lipschitz Neural Networks",
    year=2023,
    link="https://arxiv.org/abs/2303.03169",
    guarantee="bounded",
    linear=False,
    conv=SLLConv2d,
    linear_layer=SLLLinear,
    learning_rate=0.09,
    training_approximation="sums of float32 autocorrelations, those of wide 3 x 3 kernels from 18 products",
    setting=PublishedSetting(
        padding_mode="zeros",
        start="Xavier normal; biases uniform in +-fan_in^(-1/2); q standard normal",
        head="a 1 x 1 convolution of the method",
        iterations="none",
        otherwise="Q = exp(q) in place of 1 / (|q| + 1e-6); nothing is added to the sums by which is divided",
    ),
    published=Complexity(
        input_operations="CONVs & ACT",
        input_macs="2*b*s**2*c**2*k**2",
        input_memory="3*b*s**2*c",
        parameter_operations="CONVs",
        parameter_macs="c**3*k**4",
        parameter_memory="5*c**2*k**2",
    ),
    ours=Complexity(
        input_operations="CONVs & ACT, or by frequency",
        input_macs="2*b*s**2*c**2*k**2",
        input_memory="2*b*s**2*c",
        parameter_operations="MMs on half of the offsets",
        parameter_macs="c**3*(k**4 + k**2)/2",
        parameter_memory="c**2*(7*k**2/2 - k/2 + 1/4)",
    ),
)
