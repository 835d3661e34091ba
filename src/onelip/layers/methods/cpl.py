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

from onelip.layers.contract import Request, Traits
from onelip.layers.initialisation import RESIDUAL_INITIALISATIONS, initialise_residual
from onelip.layers.operators import Kernel, Matrix
from onelip.layers.power_vectors import PowerVectors
from onelip.layers.registry import MethodInfo
from onelip.layers.residual import ResidualConv2d, ResidualLinear, ResidualMap


class _CPL(PowerVectors):
    """Traits and start of both layers."""

    # In float32 the Gram bound is right to about 1e-6, which the proven bound of the layer counts, at half the cost.
    traits = Traits(
        square=True, initialisations=RESIDUAL_INITIALISATIONS, holds_for_volumes=True, evaluates_in_float64=False
    )

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """Draw new weights."""
        initialise_residual(tensors["weight"], tensors.get("bias"), self.init)


def root_of(norm: Tensor) -> Tensor:
    """sqrt(2) / norm; a weight of norm zero has no residual branch."""
    return math.sqrt(2) / norm.masked_fill(norm <= finfo(norm.dtype).tiny, math.inf)


class CPLConv2d(_CPL, ResidualConv2d):
    """Convolutional convex potential layer."""

    @property
    def size_dependent(self) -> bool:
        """As the norm of the kernel does."""
        return True

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> ResidualMap:
        """sqrt(2) W / ||W||."""
        norm, state = self.norm(tensors, request)
        root = root_of(norm)[..., None]
        weight = Kernel(tensors["weight"] * root[..., None, None, None], self.padding_mode)
        return ResidualMap(weight, root.expand(*norm.shape, self.core_out), state=state)


class CPLLinear(_CPL, ResidualLinear):
    """Fully connected convex potential layer."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> ResidualMap:
        """sqrt(2) W / ||W||."""
        norm, state = self.norm(tensors, request)
        root = root_of(norm)[..., None]
        return ResidualMap(
            Matrix(tensors["weight"] * root[..., None]), root.expand(*norm.shape, self.core_out), state=state
        )


METHOD = MethodInfo(
    key="cpl",
    guarantee="bounded",
    linear=False,
    conv=CPLConv2d,
    linear_layer=CPLLinear,
    train_eval_difference="training estimates the norm of W, evaluation bounds it from above",
    training_approximation="the norm from below, by a vector per frequency that follows the weight",
    training_error=0.03,
)
