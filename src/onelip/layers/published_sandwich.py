"""Sandwich as published: kept to show the defects that the comparison paper reports.

l(x) = sqrt(2) A^T Psi relu(sqrt(2) Psi^(-1) B x + b) with Psi = diag(exp(psi)), and weights of torch's default start.
That start leaves 0.6 of the gradient's norm in every layer, so that it vanishes towards the input of a deep network.
exp(psi) or its inverse overflows for |psi| > 88 in float32, and the product is then not a number. The scale alpha of
the weight is that of its start and never trained in convolutions; so it is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelip.errors import UnknownLipschitzConstant
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS, initialise, start_bias_uniformly
from onelip.layers.shapes import ParametrisedLayer
from onelip.layers.transformed import Transformed
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound


@dataclass(frozen=True)
class Unproven(Transformed):
    """An operator of which nothing is stated."""

    operator: Transformed

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """That of the operator."""
        return self.operator.apply(x, bias)

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """None is stated."""
        raise UnknownLipschitzConstant(
            'the published Sandwich multiplies by exp(psi) and exp(-psi), which overflow; use variant="own"'
        )


class PublishedSandwich(ParametrisedLayer):
    """What the published layers have beyond onelip's own, in front of which this class stands."""

    initialisations = PUBLISHED_INITIALISATIONS
    has_guarantee = False

    psi: nn.Parameter
    alpha: Tensor

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """psi and alpha too."""
        super().create_parameters(bias, factory)
        self.psi = nn.Parameter(torch.empty(self.core_out, **factory))
        self.register_buffer("alpha", torch.empty((), **factory))

    def start(self) -> None:
        """Torch's default for a layer of in + out inputs, whatever `init`."""
        by_output = self.weight.transpose(0, 1)  # onelip stores the transpose of the published weight
        initialise(by_output, "uniform")
        start_bias_uniformly(self.bias, by_output[0].numel())
        nn.init.zeros_(self.psi)
        with torch.no_grad():
            self.alpha.copy_(self.weight.norm())

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Unproven:
        """Onelip's own for alpha W / ||W||, with Psi in between."""
        weight, alpha = tensors["weight"], tensors["alpha"]
        norm = torch.linalg.vector_norm(weight, dim=tuple(range(alpha.dim(), weight.dim())))
        scale = (alpha / norm).reshape(alpha.shape + (1,) * (weight.dim() - alpha.dim()))
        return Unproven(super().transform_tensors({**tensors, "weight": scale * weight}, size))
