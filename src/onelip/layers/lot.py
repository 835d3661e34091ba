"""LOT: layer-wise orthogonal training (Xu, Li and Li, 2022).

At each frequency of the torus the kernel's matrix V is replaced by Q = (V V^H)^(-1/2) V, its polar factor, which
has orthonormal rows (columns where there are fewer of them): the convolution is orthogonal. The original unrolls
ten Newton iterations through autograd; here the polar factor has an implicit backward, so that memory does not
grow with the iterations, and only the real FFT's half of the spectrum is computed.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from onelip.layers.frequency_conv import FrequencyConv2d
from onelip.layers.info import Complexity, MethodInfo, PublishedSetting
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS
from onelip.layers.spatial import PolarLinear
from onelip.linalg.fourier import Size
from onelip.linalg.packed_functions import packed_values
from onelip.linalg.polar import PolarFactors, training_polar_factor, trains_in_single


class LOTConv2d(FrequencyConv2d):
    """Convolution with the polar factor of its kernel at every frequency."""

    orthogonal_by_rank = True

    keeps_directions = True
    initialisations = PUBLISHED_INITIALISATIONS
    # The iteration lands on norm 1 to rounding in float32 already, and is the costliest transformation of all.
    evaluates_in_float64 = False

    def constrain(self, matrices: Tensor) -> Tensor:
        """Polar factors."""
        return training_polar_factor(matrices, self.training)

    def packed_matrices(self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """Polar factors by eigenvectors in float32."""
        return packed_values(PolarFactors(), kernel, torus)[0] if trains_in_single(kernel, self.training) else None


class LOTLinear(PolarLinear):
    """Linear layer with the polar factor of its matrix."""

    keeps_directions = True
    initialisations = PUBLISHED_INITIALISATIONS
    evaluates_in_float64 = False


METHOD = MethodInfo(
    key="lot",
    title="LOT",
    paper="LOT: Layer-wise Orthogonal Training on Improving l2 Certified Robustness",
    year=2022,
    link="https://arxiv.org/abs/2210.11620",
    guarantee="orthogonal",
    linear=True,
    conv=LOTConv2d,
    linear_layer=LOTLinear,
    learning_rate=0.08,
    training_approximation="polar factors from eigenvectors of float32 Gram matrices",
    training_error=3e-4,
    setting=PublishedSetting(
        padding_mode="zeros",
        start="identity; biases 0",
        head="a 1 x 1 convolution of the method",
        iterations="10 Newton steps on V V^H + 1e-4 I",
        otherwise="exact polar factors",
    ),
    published=Complexity(
        input_operations="FFTs & MVs",
        input_macs="b*s**2*c**2",
        input_memory="3*b*s**2*c",
        parameter_operations="FFTs & MMs",
        parameter_macs="4*s**2*c**3*t",
        parameter_memory="4*s**2*c**2*t",
    ),
    ours=Complexity(
        input_operations="real DFTs & MVs",
        input_macs="2*b*s**2*c**2 + 4*b*s**3*c",
        input_memory="2*b*s**2*c",
        parameter_operations="real DFT; Gram, eigh & 2 MMs in float64",
        parameter_macs="20*s**2*c**3",
        parameter_memory="2*s**2*c**2",
    ),
)
