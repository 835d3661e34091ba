"""CPL: the convex potential layer (Meunier et al., 2022).

l(x) = x - (2 / ||W||^2) W^T relu(W x + b) is a gradient step on a convex potential: its Jacobian
I - (2 / ||W||^2) W^T J W with 0 <= J <= I has its eigenvalues in [-1, 1].

In training ||W|| is estimated from below by vectors that follow it. In evaluation it is the proven upper bound of a
Gram iteration on the true torus, so that what is certified is 1-Lipschitz for sure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, finfo

from onelip.layers.info import Complexity, MethodInfo, PublishedSetting
from onelip.layers.initialisation import RESIDUAL_INITIALISATIONS, start_residual
from onelip.layers.power_vectors import PowerVectors
from onelip.layers.residual import ResidualConv2d, ResidualLinear, ResidualMap
from onelip.layers.transformed import Kernel, Matrix
from onelip.linalg.fourier import Size


class _CPL(PowerVectors):
    """What both layers share."""

    # In float32 the Gram bound is right to about 1e-6, which the proven bound of the layer counts, at half the cost.
    evaluates_in_float64 = False

    initialisations = RESIDUAL_INITIALISATIONS

    def start(self) -> None:
        """Draw new weights."""
        start_residual(self.weight, self.bias, self.init)


def root_of(norm: Tensor) -> Tensor:
    """sqrt(2) / norm; a weight of norm zero has no residual branch."""
    return math.sqrt(2) / norm.masked_fill(norm <= finfo(norm.dtype).tiny, math.inf)


class CPLConv2d(_CPL, ResidualConv2d):
    """Convolutional convex potential layer."""

    size_dependent = True
    holds_for_volumes = True

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> ResidualMap:
        """sqrt(2) W / ||W||."""
        norm, state = self.norm(tensors, size)
        root = root_of(norm)[..., None]
        weight = Kernel(tensors["weight"] * root[..., None, None, None], self.padding_mode)
        return ResidualMap(weight, root.expand(*norm.shape, self.core_out), state=state)


class CPLLinear(_CPL, ResidualLinear):
    """Fully connected convex potential layer."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> ResidualMap:
        """sqrt(2) W / ||W||."""
        norm, state = self.norm(tensors, size)
        root = root_of(norm)[..., None]
        return ResidualMap(
            Matrix(tensors["weight"] * root[..., None]), root.expand(*norm.shape, self.core_out), state=state
        )


METHOD = MethodInfo(
    key="cpl",
    title="CPL",
    paper="A Dynamical System Perspective for Lipschitz Neural Networks",
    year=2022,
    link="https://arxiv.org/abs/2110.12690",
    guarantee="bounded",
    linear=False,
    conv=CPLConv2d,
    linear_layer=CPLLinear,
    learning_rate=0.03,
    train_eval_difference="training estimates the norm of W, evaluation bounds it from above",
    training_approximation="the norm from below, by a vector per frequency that follows the weight",
    training_error=0.03,
    setting=PublishedSetting(
        padding_mode="zeros",
        start="Xavier normal; biases uniform in +-fan_in^(-1/2)",
        head="a 1 x 1 convolution of the method",
        iterations="1 power iteration on an image in training, 100 in evaluation",
        otherwise="power iterations by frequency in training, a proven upper bound of the norm in evaluation",
    ),
    published=Complexity(
        input_operations="CONVs & ACT",
        input_macs="2*b*s**2*c**2*k**2",
        input_memory="3*b*s**2*c",
        parameter_operations="power method",
        parameter_macs="s**2*c**2*k**2",
        parameter_memory="c**2*k**2 + s**2*c",
    ),
    ours=Complexity(
        input_operations="CONVs & ACT, or by frequency",
        input_macs="2*b*s**2*c**2*k**2",
        input_memory="2*b*s**2*c",
        parameter_operations="power method on 144 frequencies",
        parameter_macs="1440*k**2*(c**2 + 2*c)",
        parameter_memory="2*c**2*k**2 + 864*c",
    ),
)
