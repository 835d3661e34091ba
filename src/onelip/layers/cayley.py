"""Cayley: orthogonal convolutions by the Cayley transform at every frequency (Trockman and Kolter, 2021).

Q = (I - A)(I + A)^(-1) is unitary for skew-Hermitian A, because (I - A) and (I + A) commute and are each other's
conjugate transpose. A rectangular kernel [U; V] uses A = U - U^H + V^H V. The kernel is normalised and multiplied
by a learnable scale alpha, which starts at the kernel's own norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from onelip.layers.frequency_conv import FrequencyConv2d
from onelip.layers.info import Complexity, MethodInfo, PublishedSetting
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS, start_bias_uniformly
from onelip.layers.shapes import ParametrisedLayer
from onelip.layers.spatial import MatrixLinear
from onelip.layers.transformed import Matrix
from onelip.linalg.fourier import Size
from onelip.linalg.norms import frobenius_norm
from onelip.linalg.orthogonal import CayleyTransforms, cayley
from onelip.linalg.packed_functions import packed_values


class _ScaledWeight(ParametrisedLayer):
    """A weight that is used as alpha W / ||W||_F: its size and its direction are learnt apart."""

    initialisations = PUBLISHED_INITIALISATIONS

    alpha: nn.Parameter

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight, bias and the scale alpha."""
        super().create_parameters(bias, factory)
        self.alpha = nn.Parameter(torch.empty((), **factory))

    def default_init(self) -> str:
        """The identity in square layers; elsewhere as in the original, torch's default for convolutions."""
        return "identity" if self.core_out == self.core_in else "uniform"

    def start_as_published(self) -> None:
        """Weight and bias as torch starts them in convolutions and linear layers."""
        self.start_weight("uniform")
        start_bias_uniformly(self.bias, self.weight[0].numel())

    def start(self) -> None:
        """Draw the weight; alpha starts at its norm."""
        super().start()
        with torch.no_grad():
            self.alpha.copy_(self.weight.norm())


def frobenius_scaled(tensors: Mapping[str, Tensor], dims: int) -> Tensor:
    """alpha W / ||W||_F for a weight of `dims` dimensions after the leading ones; zero stays zero."""
    weight = tensors["weight"]
    norm = frobenius_norm(weight.flatten(-dims)[..., None])
    factor = torch.where(norm > 0, tensors["alpha"] / norm.clamp_min(torch.finfo(norm.dtype).tiny), 0)
    return weight * factor.reshape(factor.shape + (1,) * dims)


class CayleyConv2d(_ScaledWeight, FrequencyConv2d):
    """Convolution with the Cayley transform of its kernel at every frequency."""

    def start(self) -> None:
        """As drawn; in the published setting alpha keeps its start, since the published optimiser never sees it."""
        super().start()
        self.alpha.requires_grad_(self.init != "published")

    def unconstrained_kernel(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """alpha K / ||K||."""
        return frobenius_scaled(tensors, 4)

    def constrain(self, matrices: Tensor) -> Tensor:
        """Cayley transforms."""
        return cayley(matrices)

    def packed_matrices(self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """Cayley transforms, but for wide matrices."""
        if not self.training or self.core_out < self.core_in:
            return None
        return packed_values(CayleyTransforms(), kernel, torus)[0]


class CayleyLinear(_ScaledWeight, MatrixLinear):
    """Linear layer with the Cayley transform of its matrix."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Matrix:
        """Cayley transform."""
        return Matrix(cayley(frobenius_scaled(tensors, 2)))


METHOD = MethodInfo(
    key="cayley",
    title="Cayley",
    paper="Orthogonalizing Convolutional Layers with the Cayley Transform",
    year=2021,
    link="https://arxiv.org/abs/2104.07167",
    guarantee="orthogonal",
    linear=True,
    conv=CayleyConv2d,
    linear_layer=CayleyLinear,
    learning_rate=0.02,
    setting=PublishedSetting(
        padding_mode="circular",
        start="torch's default: weights and biases uniform in +-fan_in^(-1/2)",
        head="the method's linear layer",
        iterations="none",
        otherwise="alpha, fixed in convolutions in both, is relative to the norm of the kernel, not to that of half "
        "of the spectrum",
    ),
    published=Complexity(
        input_operations="FFTs & MVs",
        input_macs="b*s**2*c**2",
        input_memory="5*b*s**2*c/2",
        parameter_operations="FFTs & INVs",
        parameter_macs="s**2*c**3",
        parameter_memory="3*s**2*c**2/2",
    ),
    ours=Complexity(
        input_operations="real DFTs & MVs",
        input_macs="2*b*s**2*c**2 + 4*b*s**3*c",
        input_memory="2*b*s**2*c",
        parameter_operations="real DFT & INVs",
        parameter_macs="2*s**2*c**3 + 8*s**2*c**2",
        parameter_memory="s**2*c**2",
    ),
)
