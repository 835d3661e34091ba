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
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from onelip.layers.branch_gradients import sandwich_pass
from onelip.layers.contract import Request, Traits
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.fft_products import fourier_product, half_spectrum, parts_of, trains_by_fft
from onelip.layers.frequency_conv import MOST_BYTES_KEPT, Remade, is_wide, recomputes, torus_size
from onelip.layers.initialisation import centre_tap, initialise
from onelip.layers.layer import LipschitzLayer
from onelip.layers.linear import LipschitzLinear
from onelip.layers.operators import (
    Operator,
    TrainingOperator,
    at_frequency_zero,
    check_size,
    embedded,
    frequencies,
    register_operator_bound,
)
from onelip.layers.registry import MethodInfo
from onelip.layers.sandwich_factors import SandwichFactors, WideSandwich, factors
from onelip.linalg.convolution import same_convolution
from onelip.linalg.devices import is_cpu, is_xla
from onelip.linalg.fourier import (
    RealDFT,
    Size,
    packed_values,
    to_frequency,
    torus_of,
    unpack,
)
from onelip.linalg.tensor_modes import wants_plain_operations
from onelip.proofs.layer_bound import LayerBound, compose
from onelip.proofs.linear_bounds import blocks_norm_bound, dft_norm_bound, matrix_bound, spectral_bound
from onelip.proofs.measured_rounding import Product, exact_step, for_prepared_input, measured
from onelip.proofs.proven import SAFETY, norm_bound

LINEAR_START_BIAS = 0.01
"""Initial bias of every layer. What one layer makes positive stays so in the next ones, and channels of zeros, where
relu has no slope, are lifted off zero; a larger bias adds up over the layers and drowns the signal."""


class _Sandwich(LipschitzLayer):
    traits = Traits(has_torch_taps=False)

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """relu(x + b) with a small b for "auto", else random weights and no bias."""
        weight = tensors["weight"]
        if self.init != "auto":
            initialise(weight, self.init)
        else:
            nn.init.zeros_(weight)
            # cayley([0; v I]) = [(1 - v^2) I; -2 v I] / (1 + v^2): both 1 / sqrt(2) in size for v = tan(pi / 8)
            centre_tap(weight)[self.core_out :].diagonal().fill_(-math.tan(math.pi / 8))
        if "bias" in tensors:
            nn.init.constant_(tensors["bias"], LINEAR_START_BIAS if self.init == "auto" else 0.0)


@dataclass(frozen=True)
class SandwichProduct(Operator):
    """x -> V relu(U x + b) on the last dimension, with V = `outer` and U = `inner`."""

    outer: Tensor
    inner: Tensor

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Two matrix products and an activation between them, which accelerators do not keep (XLA decides itself)."""
        if is_cpu(x.device) or is_xla(x.device) or wants_plain_operations() or not torch.is_grad_enabled():
            return self._both(x, bias)
        y: Any = checkpoint(self._both, x, bias, use_reentrant=False, preserve_rng_state=False)
        return y

    def _both(self, x: Tensor, bias: Tensor | None) -> Tensor:
        return self.product(F.relu(self.product(x, self.inner, bias)), self.outer, None)

    @staticmethod
    def product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        """The product of a matrix and the features."""
        return F.linear(x, matrix, bias)


@register_operator_bound(SandwichProduct)
def product_bound(operator: SandwichProduct, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
    """||[V^T U]||^2 / 2."""
    shape = input_shape if not isinstance(operator, SandwichPixels) else (*input_shape[1:], input_shape[0])
    rows, product = math.prod(shape[:-1]), operator.product
    norm = norm_bound(torch.cat([operator.outer.mT, operator.inner], dim=-1))
    there = measured(matrix_bound(operator.inner, bias, rows), Product(product, operator.inner, bias))
    back = measured(matrix_bound(operator.outer, None, rows), Product(product, operator.outer))
    return replace(compose(there, exact_step(F.relu), back), lipschitz=norm**2 / 2 * SAFETY)


@dataclass(frozen=True)
class SandwichPixels(SandwichProduct):
    """A Sandwich product at every pixel of an image."""

    @staticmethod
    def product(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        """The product of a matrix and the channels of every pixel."""
        return same_convolution(x, matrix[..., None, None], bias, "circular")


@dataclass(frozen=True)
class SandwichFrequencies(Operator):
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


@register_operator_bound(SandwichFrequencies)
def frequencies_bound(operator: SandwichFrequencies, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
    """||[V^T U]||^2 / 2, where [V^T U] = F^T [V^(f)^H U^(f)] (F + F) with the float DFT F."""
    dft, torus = operator.dft, torus_of(operator.dft)
    blocks = (unpack(matrices.double(), torus) for matrices in (operator.outer, operator.inner))
    norm = blocks_norm_bound(tuple(torch.cat([v.mH, u], dim=-1) for v, u in zip(*blocks, strict=True)))
    there, back = spectral_bound(operator.inner, dft, bias), spectral_bound(operator.outer, dft)
    lipschitz = (norm * dft_norm_bound(dft) ** 2) ** 2 / 2 * SAFETY
    whole = replace(compose(there, exact_step(F.relu), back), lipschitz=lipschitz)
    return for_prepared_input(lambda x: embedded(x, torus), whole)


@dataclass(frozen=True)
class SandwichFFT(TrainingOperator):
    """The operator of training on accelerators, by the parts of complex matrices (f, in, out)."""

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


class SandwichConv2d(_Sandwich, LipschitzConv2d):
    """Convolutional sandwich layer."""

    @property
    def size_dependent(self) -> bool:
        """Whether there is more than one frequency."""
        return self.core_kernel != (1, 1)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """A kernel from out to out + in channels."""
        kernel = (self.core_out + self.core_in, self.core_out, *self.geometry.core_sides)
        return {**super().tensor_shapes(), "weight": kernel}

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """Both factors at every frequency of the torus, or once for a 1 x 1 kernel."""
        size = request.size
        if size is None:
            return SandwichPixels(*factors(tensors["weight"][..., 0, 0], self.core_out, tensors.get("psi")))
        torus = torus_size(size, self.core_kernel, self.padding_mode)
        keeps_none = self._keeps_few_matrices(request)
        if trains_by_fft(request.training, tensors["weight"].device):

            def by_fft(kernel: Tensor) -> Operator:
                matrices = half_spectrum(kernel, torus)
                if keeps_none:  # some frequencies at a time, whose gradients need little memory at once
                    parts = matrices.chunk(-(-matrices.nbytes // MOST_BYTES_KEPT), dim=-3)
                    both = [factors(part, self.core_out) for part in parts]
                    outer, inner = (torch.cat(each, dim=-3) for each in zip(*both, strict=True))
                else:
                    outer, inner = factors(matrices, self.core_out, tensors.get("psi"))
                return SandwichFFT(parts_of(outer), parts_of(inner), torus, size)

            return Remade(tensors["weight"], by_fft) if keeps_none else by_fft(tensors["weight"])
        if keeps_none:
            return WideSandwich.of_kernel(tensors["weight"], torus, size, SandwichFactors(self.core_out))
        if request.training and "psi" not in tensors:
            outer, inner = packed_values(tensors["weight"], torus, SandwichFactors(self.core_out))
        else:
            both = partial(factors, outputs=self.core_out, psi=tensors.get("psi"))
            outer, inner = packed_values.body(tensors["weight"], torus, both)
        parts = frequencies(outer, torus, size)
        return SandwichFrequencies(outer, inner, parts.dft_rows, parts.dft_columns, size)

    def transforms_separately(self, request: Request) -> bool:
        """Also those that keep one or none of their matrices."""
        return self._keeps_few_matrices(request) or super().transforms_separately(request)

    def _keeps_few_matrices(self, request: Request) -> bool:
        """Wide layers in training, in the type of their parameters."""
        if request.size is None or "psi" in self.tensors_to_transform():
            return False
        if not is_cpu(self.weight.device):
            return recomputes(self, request)
        keeps_type = request.approximate and self.weight.element_size() >= 4
        is_one_layer = self.groups == 1  # groups are transformed as a batch of layers
        return keeps_type and is_one_layer and is_wide(self, request.size)


class SandwichLinear(_Sandwich, LipschitzLinear):
    """Fully connected sandwich layer."""

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """(out + in, out)."""
        return {**super().tensor_shapes(), "weight": (self.core_out + self.core_in, self.core_out)}

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """Both factors."""
        return SandwichProduct(*factors(tensors["weight"], self.core_out, tensors.get("psi")))


METHOD = MethodInfo(
    key="sandwich",
    guarantee="bounded",
    linear=False,
    conv=SandwichConv2d,
    linear_layer=SandwichLinear,
)
