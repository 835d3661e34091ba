"""Sandwich layers (Wang and Manchester, 2023).

l(x) = sqrt(2) A^T relu(sqrt(2) B x + b) with A A^T + B B^T = I, from the Cayley transform of one tall block. The
Jacobian is 2 A^T J B with 0 <= J <= I; with A' = J^(1/2) A, B' = J^(1/2) B, the matrix [A' B'] has norm at most 1, and
4 <A'u, B'v> = ||A'u + B'v||^2 - ||A'u - B'v||^2 <= 2 for unit u, v: the layer is 1-Lipschitz. The diagonal Psi of the
original only rescales b (appendix of the comparison paper) and is left out. A convolution does this at every
frequency, with the activation in between on the image.

For V = sqrt(2) A^T and U = sqrt(2) B as deployed in floats, the same argument gives the constant ||[V^T U]||^2 / 2:
with v = D^(1/2) V^T p and u = D^(1/2) U q, <p, V D U q> = <v, u> <= ||v + u||^2 / 4, and (p, q) has norm sqrt(2).

A random start halves the gradient's energy in every layer, so that it vanishes in deep nets. By default the layer
starts as relu(x + b) instead: A = B = I / sqrt(2) and a small positive bias. The first such layer cuts off the
negative part; for those behind it, whose inputs are positive, that is the identity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from onelip.errors import InvalidInputError
from onelip.layers.convolution import same_convolution
from onelip.layers.fft_products import fourier_product, half_spectrum, parts_of, trains_by_fft
from onelip.layers.frequency_conv import is_wide, recomputes, torus_size
from onelip.layers.hidden_passes import sandwich_pass
from onelip.layers.info import Complexity, MethodInfo, PublishedSetting
from onelip.layers.initialisation import centre_tap, initialise
from onelip.layers.published_sandwich import PublishedSandwich
from onelip.layers.recomputed_products import RecomputedSandwich
from onelip.layers.sandwich_halves import SandwichHalves, WideSandwich, halves
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear, ParametrisedLayer
from onelip.layers.transformed import Transformed, at_frequency_zero, check_size, embedded, frequencies
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.fourier import (
    RealDFT,
    Size,
    pack,
    to_frequency,
    torus_blocks,
    torus_of,
    unpack,
)
from onelip.linalg.layer_bound import LayerBound, compose
from onelip.linalg.linear_bounds import blocks_norm_bound, dft_norm_bound, matrix_bound, spectral_bound
from onelip.linalg.measured_rounding import Product, behind, measured, moving
from onelip.linalg.packed_functions import packed_values
from onelip.linalg.proven import SAFETY, norm_bound
from onelip.linalg.tensor_modes import is_traced
from onelip.linalg.training_precision import may_approximate

LINEAR_START_BIAS = 0.01
"""Initial bias of every layer. What one layer makes positive stays so in the next ones, and channels of zeros, where
relu has no slope, are lifted off zero; a larger bias adds up over the layers and drowns the signal."""


class _Sandwich(ParametrisedLayer):
    def start(self) -> None:
        """relu(x + b) with a small b for "auto", else random weights and no bias."""
        if self.init != "auto":
            initialise(self.weight, self.init)
        else:
            nn.init.zeros_(self.weight)
            with torch.no_grad():
                # cayley([0; v I]) = [(1 - v^2) I; -2 v I] / (1 + v^2): both 1 / sqrt(2) in size for v = tan(pi / 8)
                centre_tap(self.weight)[self.core_out :].fill_diagonal_(-math.tan(math.pi / 8))
        if self.bias is not None:
            nn.init.constant_(self.bias, LINEAR_START_BIAS if self.init == "auto" else 0.0)


@dataclass(frozen=True)
class SandwichProduct(Transformed):
    """x -> V relu(U x + b) on the last dimension, with V = `outer` and U = `inner`."""

    outer: Tensor
    inner: Tensor

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Two matrix products and an activation between them, which accelerators do not keep."""
        if suits_cpu(x.device) or is_traced() or not torch.is_grad_enabled():
            return self._both(x, bias)
        y: Any = checkpoint(self._both, x, bias, use_reentrant=False, preserve_rng_state=False)
        return y

    def _both(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return self._product(F.relu(self._product(x, self.inner, bias)), self.outer, None)

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """||[V^T U]||^2 / 2."""
        rows = math.prod(input_shape[:-1])
        norm = norm_bound(torch.cat([self.outer.mT, self.inner], dim=-1))
        there = measured(matrix_bound(self.inner, bias, rows), Product(self._product, self.inner, bias))
        back = measured(matrix_bound(self.outer, None, rows), Product(self._product, self.outer))
        return replace(compose(there, moving(F.relu), back), lipschitz=norm**2 / 2 * SAFETY)

    @staticmethod
    def _product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, matrix, bias)


@dataclass(frozen=True)
class SandwichPixels(SandwichProduct):
    """The same at every pixel of an image."""

    @staticmethod
    def _product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        return same_convolution(x, matrix[..., None, None], bias, "circular")

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """||[V^T U]||^2 / 2."""
        return super().bound((*input_shape[1:], input_shape[0]), bias)


@dataclass(frozen=True)
class SandwichFrequencies(Transformed):
    """x -> V relu(U x + b) with U and V by their matrices at the frequencies of one torus."""

    outer: Tensor
    inner: Tensor
    dft_rows: Tensor
    dft_columns: Tensor | None
    image: Size

    @property
    def dft(self) -> RealDFT:
        """The DFT of the torus."""
        return RealDFT(self.dft_columns, self.dft_rows)

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Two convolutions in the frequency domain, the activation on the torus between them."""
        check_size(x, self.image)
        dft, torus = self.dft, torus_of(self.dft)
        x_frequencies = to_frequency(embedded(x, torus), dft)
        y = sandwich_pass(x_frequencies, self.inner, self.outer, at_frequency_zero(bias, torus), torus, dft)
        return y[..., : x.shape[-2], : x.shape[-1]]

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """||[V^T U]||^2 / 2, where [V^T U] = F^T [V^(f)^H U^(f)] (F + F) with the float DFT F."""
        blocks = (unpack(matrices.double(), torus_of(self.dft)) for matrices in (self.outer, self.inner))
        norm = blocks_norm_bound(tuple(torch.cat([v.mH, u], dim=-1) for v, u in zip(*blocks, strict=True)))
        there, back = spectral_bound(self.inner, self.dft, bias), spectral_bound(self.outer, self.dft)
        lipschitz = (norm * dft_norm_bound(self.dft) ** 2) ** 2 / 2 * SAFETY
        whole = replace(compose(there, moving(F.relu), back), lipschitz=lipschitz)
        return behind(lambda x: embedded(x, torus_of(self.dft)), whole)


@dataclass(frozen=True)
class SandwichFFT(Transformed):
    """The same in training on accelerators, by the parts of complex matrices (f, in, out)."""

    outer: Tensor
    inner: Tensor
    torus: Size
    image: Size

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Two products at every frequency, the activation on the torus between them."""
        check_size(x, self.image)
        hidden = fourier_product(embedded(x, self.torus), self.inner)
        hidden = F.relu(hidden if bias is None else hidden + bias[:, None, None])
        return fourier_product(hidden, self.outer)[..., : x.shape[-2], : x.shape[-1]]

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """None: the operator of evaluation has one."""
        raise InvalidInputError("this is the operator of training: the one of evaluation, `deployed`, has a bound")


class SandwichConv2d(_Sandwich, LipschitzConv2d):
    """Convolutional sandwich layer."""

    has_torch_taps = False

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight and bias."""
        super().create_parameters(bias, factory)
        self.size_dependent = self.core_kernel != (1, 1)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """A kernel from out to out + in channels."""
        return self.core_out + self.core_in, self.core_out, *self.geometry.core_sides

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """Both halves at every frequency of the torus, or once for a 1 x 1 kernel."""
        if size is None:
            return SandwichPixels(*halves(tensors["weight"][..., 0, 0], self.core_out, tensors.get("psi")))
        torus = torus_size(size, self.core_kernel, self.padding_mode)
        if self._keeps_few_matrices(size):
            on_cpu = suits_cpu(tensors["weight"].device)
            operator = WideSandwich.of_kernel if on_cpu else RecomputedSandwich
            return operator(tensors["weight"], torus, size, SandwichHalves(self.core_out))
        if trains_by_fft(self.training, tensors["weight"].device):
            outer, inner = halves(half_spectrum(tensors["weight"], torus), self.core_out, tensors.get("psi"))
            return SandwichFFT(parts_of(outer), parts_of(inner), torus, size)
        if self.training and "psi" not in tensors:
            outer, inner = packed_values(SandwichHalves(self.core_out), tensors["weight"], torus)
        else:
            blocks = [
                halves(block, self.core_out, tensors.get("psi")) for block in torus_blocks(tensors["weight"], torus)
            ]
            outer, inner = (pack(tuple(half)) for half in zip(*blocks, strict=True))
        parts = frequencies(outer, torus, size)
        return SandwichFrequencies(outer, inner, parts.dft_rows, parts.dft_columns, size)

    def transforms_alone(self, size: Size | None) -> bool:
        """Also those that keep one or none of their matrices."""
        return self._keeps_few_matrices(size) or super().transforms_alone(size)

    def _keeps_few_matrices(self, size: Size | None) -> bool:
        """Wide layers in training, in the type of their parameters."""
        if size is None or "psi" in self.tensors_to_transform():
            return False
        if not suits_cpu(self.weight.device):
            return recomputes(self, size)
        keeps_type = may_approximate(self.training) and self.weight.element_size() >= 4
        return keeps_type and self.groups == 1 and is_wide(self, size)  # groups are transformed as a batch of layers


class SandwichLinear(_Sandwich, LipschitzLinear):
    """Fully connected sandwich layer."""

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(out + in, out)."""
        return self.core_out + self.core_in, self.core_out

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """Both halves."""
        return SandwichProduct(*halves(tensors["weight"], self.core_out, tensors.get("psi")))


class PublishedSandwichConv2d(PublishedSandwich, SandwichConv2d):
    """The published convolution; no certificate is made of it."""


class PublishedSandwichLinear(PublishedSandwich, SandwichLinear):
    """The published linear layer; no certificate is made of it."""


METHOD = MethodInfo(
    key="sandwich",
    title="Sandwich",
    paper="Direct Parameterization of Lipschitz-Bounded Deep Networks",
    year=2023,
    link="https://arxiv.org/abs/2301.11526",
    guarantee="bounded",
    linear=False,
    conv=SandwichConv2d,
    linear_layer=SandwichLinear,
    learning_rate=0.02,
    short_learning_rate=0.0005,  # at 0.002 the activations of wider networks die: nothing is learnt any more
    setting=PublishedSetting(
        padding_mode="circular",
        start="torch's default; biases uniform",
        head="the method's linear layer",
        iterations="none",
        otherwise="no certificate is made of the published layers",
        conv=PublishedSandwichConv2d,
        linear_layer=PublishedSandwichLinear,
    ),
    published=Complexity(
        input_operations="FFTs, MVs & ACT",
        input_macs="2*b*s**2*c**2",
        input_memory="6*b*s**2*c",
        parameter_operations="FFTs & INVs",
        parameter_macs="2*s**2*c**3",
        parameter_memory="3*s**2*c**2",
    ),
    ours=Complexity(
        input_operations="real DFTs, MVs & ACT",
        input_macs="4*b*s**2*c**2 + 8*b*s**3*c",
        input_memory="2*b*s**2*c",
        parameter_operations="real DFT, INVs & MMs",
        parameter_macs="6*s**2*c**3",
        parameter_memory="2*s**2*c**2",
    ),
)
