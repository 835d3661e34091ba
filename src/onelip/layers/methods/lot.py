"""LOT: layer-wise orthogonal training (Xu, Li and Li, 2022).

At each frequency of the torus the kernel's matrix V is replaced by Q = (V V^H)^(-1/2) V, its polar factor, which
has orthonormal rows (columns where there are fewer of them): the convolution is orthogonal. The original unrolls
ten Newton iterations through autograd; here the polar factor has an implicit backward, so that memory does not
grow with the iterations, and only the real FFT's half of the spectrum is computed.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from onelip.layers.contract import Request, Traits
from onelip.layers.frequency_conv import FrequencyConv2d
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS
from onelip.layers.kernel_layers import PolarLinear
from onelip.layers.registry import MethodInfo
from onelip.linalg.fourier import Size, packed_values
from onelip.linalg.polar import training_polar, training_polar_factor, trains_in_single

# The iteration lands on norm 1 to rounding in float32 already, and is the costliest transformation of all.
TRAITS = Traits(
    initialisations=PUBLISHED_INITIALISATIONS,
    keeps_directions=True,
    orthogonal_by_rank=True,
    evaluates_in_float64=False,
)


class LOTConv2d(FrequencyConv2d):
    """Convolution with the polar factor of its kernel at every frequency."""

    traits = TRAITS

    def constrain(self, matrices: Tensor, request: Request) -> Tensor:
        """Polar factors."""
        return training_polar_factor(matrices, request.approximate)

    def packed_matrices(
        self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor], request: Request
    ) -> Tensor | None:
        """Polar factors by eigenvectors in float32."""
        if not trains_in_single(kernel, request.approximate):
            return None
        return packed_values(kernel, torus, training_polar)[0]


class LOTLinear(PolarLinear):
    """Linear layer with the polar factor of its matrix."""

    traits = TRAITS


METHOD = MethodInfo(
    key="lot",
    guarantee="orthogonal",
    conv=LOTConv2d,
    linear_layer=LOTLinear,
    training_approximation="polar factors from eigenvectors of float32 Gram matrices",
    training_error=3e-4,
)
