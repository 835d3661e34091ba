"""Cayley: orthogonal convolutions by the Cayley transform at every frequency (Trockman and Kolter, 2021).

Q = (I - A)(I + A)^(-1) is unitary for skew-Hermitian A, because (I - A) and (I + A) commute and are each other's
conjugate transpose. A rectangular kernel [U; V] uses A = U - U^H + V^H V. The kernel is normalised and multiplied
by a learnable scale alpha, which starts at the kernel's own norm.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from onelip.layers.contract import Request, Traits
from onelip.layers.frequency_conv import FrequencyConv2d
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS, initialise_bias_uniformly
from onelip.layers.kernel_layers import MatrixLinear
from onelip.layers.layer import LipschitzLayer
from onelip.layers.operators import Matrix
from onelip.layers.registry import MethodInfo
from onelip.linalg.fourier import Size, packed_values
from onelip.linalg.norms import frobenius_norm
from onelip.linalg.orthogonal import cayley


class _ScaledWeight(LipschitzLayer):
    """A weight that is used as alpha W / ||W||_F: its size and its direction are learnt apart."""

    traits = Traits(initialisations=PUBLISHED_INITIALISATIONS)

    alpha: nn.Parameter

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """The scale alpha too."""
        return {**super().tensor_shapes(), "alpha": ()}

    def default_init(self) -> str:
        """The identity in square layers; elsewhere as in the original, torch's default for convolutions."""
        return "identity" if self.core_out == self.core_in else "uniform"

    def initialise_as_published(self, tensors: dict[str, Tensor]) -> None:
        """Weight and bias as torch starts them in convolutions and linear layers."""
        self.initialise_weight(tensors["weight"], "uniform")
        initialise_bias_uniformly(tensors.get("bias"), tensors["weight"][0].numel())

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """Draw the weight; alpha starts at its norm."""
        super().initialise(tensors)
        tensors["alpha"].copy_(tensors["weight"].norm())


def frobenius_scaled(tensors: Mapping[str, Tensor], dims: int) -> Tensor:
    """alpha W / ||W||_F for a weight of `dims` dimensions after the leading ones; zero stays zero."""
    weight = tensors["weight"]
    norm = frobenius_norm(weight.flatten(-dims)[..., None])
    factor = torch.where(norm > 0, tensors["alpha"] / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0)
    return weight * factor.reshape(factor.shape + (1,) * dims)


class CayleyConv2d(_ScaledWeight, FrequencyConv2d):
    """Convolution with the Cayley transform of its kernel at every frequency."""

    def reset_parameters(self) -> None:
        """As drawn; in the published setting alpha keeps its start, since the published optimiser never sees it."""
        super().reset_parameters()
        self.alpha.requires_grad_(self.init != "published")

    def unconstrained_kernel(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """alpha K / ||K||."""
        return frobenius_scaled(tensors, 4)

    def constrain(self, matrices: Tensor, request: Request) -> Tensor:
        """Cayley transforms."""
        return cayley(matrices)

    def packed_matrices(
        self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor], request: Request
    ) -> Tensor | None:
        """Cayley transforms, but for wide matrices."""
        if not request.training or self.core_out < self.core_in:
            return None
        return packed_values(kernel, torus, cayley)[0]


class CayleyLinear(_ScaledWeight, MatrixLinear):
    """Linear layer with the Cayley transform of its matrix."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """Cayley transform."""
        return Matrix(cayley(frobenius_scaled(tensors, 2)))


METHOD = MethodInfo(
    key="cayley",
    guarantee="orthogonal",
    conv=CayleyConv2d,
    linear_layer=CayleyLinear,
)
