"""CPL: the convex potential layer (Meunier et al., 2022).

l(x) = x - (2 / ||W||^2) W^T relu(W x + b) is a gradient step on a convex potential: its Jacobian
I - (2 / ||W||^2) W^T J W with 0 <= J <= I has its eigenvalues in [-1, 1].

In training ||W|| is estimated from below by one warm-started power iteration per frequency. In evaluation it is the
proven upper bound of a Gram iteration on the true torus, so that what is certified is 1-Lipschitz for sure.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelip.layers.base import LipschitzLayer
from onelip.layers.fft_products import half_spectrum
from onelip.layers.info import Complexity, MethodInfo, PublishedSetting
from onelip.layers.initialisation import RESIDUAL_INITIALISATIONS, start_residual
from onelip.layers.residual import ResidualConv2d, ResidualLinear, ResidualMap
from onelip.layers.shapes import ParametrisedLayer
from onelip.layers.transformed import Kernel, Matrix, Transformed
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.fourier import Size, frequency_matrix_at, half_width, kernel_to_frequency
from onelip.linalg.norms import conv_norm_bound, gram_norm_bound, one_batch, power_iteration

WARM_UP = 5
"""Power iterations when weights are drawn, so that the first training step starts from a fair estimate."""

GRAM_ITERATIONS = 7

SMALL = 1e-15
"""Share of the last power vector in the next one, for those that the kernel maps to zero."""


class _PowerVectors(ParametrisedLayer):
    """A layer with the warm start of its power iterations as a buffer of fixed size, saved with the weights."""

    # In float32 the Gram bound is right to about 1e-6, which the proven bound of the layer counts, at half the cost.
    evaluates_in_float64 = False

    initialisations = RESIDUAL_INITIALISATIONS

    power_vectors: Tensor

    grid: Size = (1, 1)
    """Torus whose frequencies have power vectors."""

    @property
    @abstractmethod
    def power_shape(self) -> tuple[int, ...]:
        """Shape of the power vectors."""

    @abstractmethod
    def iterate(self, tensors: Mapping[str, Tensor], torus: Size, iterations: int) -> tuple[Tensor, Tensor]:
        """Power iterations at the frequencies of a torus within the grid: the norms there, all power vectors."""

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight, bias and power vectors."""
        super().create_parameters(bias, factory)
        self.register_buffer("power_vectors", torch.empty(self.power_shape, **factory))

    def start(self) -> None:
        """Draw new weights and bring the power vectors in line with them."""
        start_residual(self.weight, self.bias, self.init)
        nn.init.normal_(self.power_vectors)
        if not self.weight.is_meta:
            wide = torch.promote_types(self.weight.dtype, torch.float32)  # there are no complex numbers of bfloat16
            with torch.no_grad():
                tensors = {name: tensor.to(wide) for name, tensor in self.tensors_of_core().items()}
                self.power_vectors.copy_(self.iterate(tensors, self.grid, WARM_UP)[1])

    def keep_states(self, layers: Sequence[LipschitzLayer], transformed: Sequence[Transformed]) -> None:
        """The power vectors move on, those of all layers in one go."""
        moved = [operator.tensors().get("power_vectors") for operator in transformed]
        kept = [layer.get_buffer("power_vectors") for layer in layers]
        pairs = [(here, there) for here, there in zip(kept, moved, strict=True) if there is not None]
        if pairs:
            with torch.no_grad():
                torch._foreach_copy_([_places(here, there) for here, there in pairs], [there for _, there in pairs])


def _places(kept: Tensor, moved: Tensor) -> Tensor:
    """The kept vectors of the frequencies that have moved: those of a smaller torus are among those of the grid."""
    if kept.shape == moved.shape:
        return kept
    rows, columns = kept.shape[-3] // moved.shape[-3], (kept.shape[-2] - 1) // max(1, moved.shape[-2] - 1)
    return kept[..., ::rows, ::columns, :][..., : moved.shape[-2], :]


@dataclass(frozen=True)
class EstimatedResidual(ResidualMap):
    """A residual layer of training, with the power vectors by which the norm was estimated."""

    power_vectors: Tensor


def root_of(norm: Tensor) -> Tensor:
    """sqrt(2) / norm; a weight of norm zero has no residual branch."""
    limits = torch.finfo(norm.dtype)
    usable = (norm > limits.tiny) & (norm < limits.max)
    return math.sqrt(2) / norm.masked_fill(~usable, math.inf)


class CPLConv2d(_PowerVectors, ResidualConv2d):
    """Convolutional convex potential layer."""

    size_dependent = True
    holds_for_volumes = True
    estimates_in_training = True

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Kernel, bias and power vectors; a 1 x 1 kernel is the same at all frequencies."""
        self.grid = self.coarse_torus
        super().create_parameters(bias, factory)

    @property
    def power_shape(self) -> tuple[int, ...]:
        """Real and imaginary parts of one vector per frequency of the grid."""
        return 2, self.grid[0], half_width(self.grid[1]), self.core_in

    def iterate(self, tensors: Mapping[str, Tensor], torus: Size, iterations: int) -> tuple[Tensor, Tensor]:
        """One batch of power iterations over frequencies."""
        vectors = tensors["power_vectors"].clone()
        here = vectors[..., :: self.grid[0] // torus[0], :: self.grid[1] // torus[1], :]
        matrices = kernel_to_frequency(tensors["weight"], torus)
        sigma, moved = power_iteration(matrices, torch.complex(*here.unbind(-4)), iterations)
        here.copy_(torch.stack([moved.real, moved.imag], dim=-4))
        return sigma, vectors

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> ResidualMap:
        """sqrt(2) W / ||W||, the norm estimated in training and proven in evaluation."""
        assert size is not None
        kernel = tensors["weight"]
        if not self.training:
            norm = conv_norm_bound(kernel, size, self.padding_mode, GRAM_ITERATIONS)
            return ResidualMap(*self._normalised(kernel, norm))
        divides = self.grid[0] % size[0] == 0 and self.grid[1] % size[1] == 0
        torus = size if divides else self.grid
        if not suits_cpu(kernel.device):
            norm, vectors = self._estimate_everywhere(tensors, torus)
            return EstimatedResidual(*self._normalised(kernel, norm), vectors)
        with torch.no_grad():
            sigma, vectors = self.iterate(tensors, torus, 1)
        return EstimatedResidual(*self._normalised(kernel, self._estimate(kernel, sigma, vectors, torus)), vectors)

    def _estimate_everywhere(self, tensors: Mapping[str, Tensor], torus: Size) -> tuple[Tensor, Tensor]:
        """One power iteration at every frequency, and the largest ||K^(f) v_f|| of them, differentiable in the kernel.

        For accelerators, which do all frequencies at once faster than they find the largest. A vector that K maps to
        zero stays where it is.
        """
        vectors = tensors["power_vectors"]
        here = vectors[..., :: self.grid[0] // torus[0], :: self.grid[1] // torus[1], :]
        matrices = half_spectrum(tensors["weight"], torus)
        v = torch.complex(*here.unbind(-4)).flatten(-3, -2).unsqueeze(-1)  # (..., f, in, 1)
        lead, (a, v) = matrices.shape[:-2], (one_batch(matrices), one_batch(v))
        with torch.no_grad():
            moved = torch.baddbmm(v, a.mH, torch.bmm(a, v), beta=SMALL)
            v = moved / torch.linalg.vector_norm(torch.view_as_real(moved), dim=(-3, -2, -1), keepdim=True)[..., 0]
        sigma = torch.linalg.vector_norm(torch.view_as_real(torch.bmm(a, v)), dim=(-3, -2, -1))
        parts = torch.view_as_real(v).reshape(*lead[:-1], torus[0], -1, v.shape[-2], 2)
        return sigma.reshape(lead).amax(-1), parts.movedim(-1, -4)

    def _normalised(self, kernel: Tensor, norm: Tensor) -> tuple[Kernel, Tensor]:
        root = root_of(norm)[..., None]
        weight = Kernel(kernel * root[..., None, None, None], self.padding_mode)
        return weight, root.expand(*norm.shape, self.core_out)

    def _estimate(self, kernel: Tensor, sigma: Tensor, vectors: Tensor, torus: Size) -> Tensor:
        """||K^(f) v_f|| at the frequency f where it is largest.

        Differentiable in the kernel, with f and v_f held fixed; no other frequency needs a gradient.
        """
        best = sigma.flatten(-2).argmax(-1)
        row = torch.div(best, half_width(torus[1]), rounding_mode="floor")
        column = best % half_width(torus[1])
        place = row * (self.grid[0] // torus[0]) * half_width(self.grid[1]) + column * (self.grid[1] // torus[1])
        index = place[..., None, None, None].expand(*place.shape, 2, 1, vectors.shape[-1])
        vector = torch.complex(*vectors.flatten(-3, -2).gather(-2, index).squeeze(-2).unbind(-2))
        cycles = row.to(kernel.dtype) / torus[0], column.to(kernel.dtype) / torus[1]
        return power_iteration(frequency_matrix_at(kernel, *cycles), vector, 0)[0]


class CPLLinear(_PowerVectors, ResidualLinear):
    """Fully connected convex potential layer."""

    @property
    def power_shape(self) -> tuple[int, ...]:
        """One vector."""
        return (self.core_in,)

    def iterate(self, tensors: Mapping[str, Tensor], torus: Size, iterations: int) -> tuple[Tensor, Tensor]:
        """Power iterations on the matrix."""
        return power_iteration(tensors["weight"], tensors["power_vectors"], iterations)

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> ResidualMap:
        """sqrt(2) W / ||W||, the norm estimated in training and proven in evaluation."""
        matrix = tensors["weight"]
        if not self.training:
            return ResidualMap(*self._normalised(matrix, gram_norm_bound(matrix, GRAM_ITERATIONS)))
        norm, vectors = self.iterate(tensors, self.grid, 1)
        return EstimatedResidual(*self._normalised(matrix, norm), vectors)

    def _normalised(self, matrix: Tensor, norm: Tensor) -> tuple[Matrix, Tensor]:
        root = root_of(norm)[..., None]
        return Matrix(matrix * root[..., None]), root.expand(*norm.shape, self.core_out)


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
    train_eval_difference="training estimates the norm of W by power iteration, evaluation bounds it from above",
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
        parameter_macs="144*c**2*(2*k**2 + 12)",
        parameter_memory="2*c**2*(k**2 + 1) + 576*c",
    ),
)
