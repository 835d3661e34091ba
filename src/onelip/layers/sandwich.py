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
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from onelip.layers.base import Transformed
from onelip.layers.convolution import same_convolution
from onelip.layers.fused import FusedLayer
from onelip.layers.info import Complexity, MethodInfo
from onelip.layers.initialisation import centre_tap, initialise
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear, ParametrisedLayer
from onelip.layers.spectral_conv import (
    at_frequency_zero,
    check_size,
    dft_of,
    embedded,
    image_size,
    torus_size,
    with_dft,
)
from onelip.linalg.fourier import (
    Size,
    from_frequency,
    multiply_frequencies,
    pack,
    to_frequency,
    torus_blocks,
    torus_of,
    unpack,
)
from onelip.linalg.layer_bound import LayerBound, compose
from onelip.linalg.linear_bounds import blocks_norm_bound, dft_norm_bound, matrix_bound, spectral_bound
from onelip.linalg.orthogonal import cayley
from onelip.linalg.proven import SAFETY, norm_bound
from onelip.linalg.tracing import is_traced

LINEAR_START_BIAS = 0.01
"""Initial bias of every layer. What one layer makes positive stays so in the next ones, and channels of zeros, where
relu has no slope, are lifted off zero; a larger bias adds up over the layers and drowns the signal."""


def halves(weight: Tensor, outputs: int) -> tuple[Tensor, Tensor]:
    """sqrt(2) A^H (out x out) and sqrt(2) B (out x in) from an unconstrained (..., out + in, out) matrix."""
    isometry = math.sqrt(2) * cayley(weight)
    return isometry[..., :outputs, :], isometry[..., outputs:, :].mH


class _Sandwich(ParametrisedLayer):
    def reset_parameters(self) -> None:
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


def sandwich_convolution(x: Tensor, transformed: Mapping[str, Tensor], bias: Tensor | None) -> Tensor:
    """The layer on the torus of its parameters, where smaller images are embedded; 1 x 1 kernels need no torus."""
    if "dft_rows" not in transformed:
        hidden = F.relu(same_convolution(x, transformed["inner"], bias, "circular"))
        return same_convolution(hidden, transformed["outer"], None, "circular")
    dft = dft_of(transformed)
    torus = torus_of(dft)

    def rest(frequencies: Tensor, inner: Tensor, outer: Tensor, constant: Tensor | None) -> Tensor:
        hidden = F.relu(from_frequency(multiply_frequencies(frequencies, inner, constant), torus, dft))
        return from_frequency(multiply_frequencies(to_frequency(hidden, dft), outer), torus, dft)

    frequencies = to_frequency(embedded(x, torus), dft)
    arguments = frequencies, transformed["inner"], transformed["outer"], at_frequency_zero(bias, torus)
    # The activation and its frequencies are computed anew in the backward pass: a third of the memory.
    y = rest(*arguments) if is_traced() else checkpoint(rest, *arguments, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(y, Tensor)
    return y[..., : x.shape[-2], : x.shape[-1]]


def sandwich_product(x: Tensor, transformed: Mapping[str, Tensor], bias: Tensor | None) -> Tensor:
    """The fully connected layer."""
    return F.linear(F.relu(F.linear(x, transformed["inner"], bias)), transformed["outer"])


def sandwich_product_bound(outer: Tensor, inner: Tensor, bias: Tensor | None, rows: int) -> LayerBound:
    """The fully connected layer on so many vectors."""
    norm = norm_bound(torch.cat([outer.mT, inner], dim=-1))
    parts = compose(matrix_bound(inner, bias, rows), matrix_bound(outer, None, rows))
    return LayerBound(norm**2 / 2 * SAFETY, parts.offset, parts.rounding)


def sandwich_convolution_bound(transformed: Mapping[str, Tensor], bias: Tensor | None, size: Size) -> LayerBound:
    """The convolutional layer: [V^T U] = F^T [V^(f)^H U^(f)] (F + F) with the float DFT F; or one product per pixel."""
    outer, inner = transformed["outer"].detach(), transformed["inner"].detach()
    if "dft_rows" not in transformed:
        return sandwich_product_bound(outer[..., 0, 0], inner[..., 0, 0], bias, math.prod(size))
    dft = dft_of(transformed)
    blocks = (unpack(matrices.double(), torus_of(dft)) for matrices in (outer, inner))
    norm = blocks_norm_bound(tuple(torch.cat([v.mH, u], dim=-1) for v, u in zip(*blocks, strict=True)))
    parts = compose(spectral_bound(inner, dft, bias), spectral_bound(outer, dft))
    return LayerBound((norm * dft_norm_bound(dft) ** 2) ** 2 / 2 * SAFETY, parts.offset, parts.rounding)


class SandwichConv2d(_Sandwich, LipschitzConv2d):
    """Convolutional sandwich layer."""

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight and bias."""
        super().create_parameters(bias, factory)
        self.size_dependent = self.kernel_size[0] > 1

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """A kernel from out to out + in channels."""
        return self.core_out + self.core_in, self.core_out, *self.kernel_size

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """Both halves at every frequency of the torus, or once for a 1 x 1 kernel."""
        if size is None:
            outer, inner = halves(tensors["weight"][..., 0, 0], self.core_out)
            return {"outer": outer[..., None, None], "inner": inner[..., None, None]}
        torus = torus_size(size, self.kernel_size, self.padding_mode)
        blocks = [halves(block, self.core_out) for block in torus_blocks(tensors["weight"], torus)]
        outer, inner = (pack(tuple(half)) for half in zip(*blocks, strict=True))
        transformed = with_dft(outer, torus)
        return {"outer": transformed.pop("matrices"), "inner": inner, **transformed}

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """Two convolutions in the frequency domain, the activation on the image between them."""
        return sandwich_convolution(x, transformed, self.bias)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """||[V^T U]||^2 / 2."""
        size = input_shape[-2], input_shape[-1]
        return sandwich_convolution_bound(self.deployed(size), self.bias, self.strided(size))

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """The same with fixed matrices, for images of one size."""
        margin = self.kernel_size if self.padding_mode == "zeros" else (1, 1)
        return FusedSandwichConv2d(transformed, self.bias, margin)


class SandwichLinear(_Sandwich, LipschitzLinear):
    """Fully connected sandwich layer."""

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(out + in, out)."""
        return self.core_out + self.core_in, self.core_out

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """Both halves."""
        outer, inner = halves(tensors["weight"], self.core_out)
        return {"outer": outer, "inner": inner}

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """Two matrix products and an activation between them."""
        return sandwich_product(x, transformed, self.bias)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """||[V^T U]||^2 / 2."""
        transformed = self.deployed()
        rows = math.prod(input_shape[:-1])
        return sandwich_product_bound(transformed["outer"], transformed["inner"], self.bias, rows)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """The same with fixed matrices."""
        return FusedSandwichLinear(transformed, self.bias)


class FusedSandwichLinear(FusedLayer):
    """A fully connected sandwich layer with fixed matrices."""

    def forward(self, x: Tensor) -> Tensor:
        """Two matrix products and an activation between them."""
        return sandwich_product(x, self.tensors(), self.bias)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """||[V^T U]||^2 / 2."""
        outer, inner = (self.get_parameter(name).detach() for name in ("outer", "inner"))
        return sandwich_product_bound(outer, inner, self.bias, math.prod(input_shape[:-1]))


class FusedSandwichConv2d(FusedLayer):
    """A convolutional sandwich layer with fixed matrices, for one image size."""

    def __init__(self, transformed: Mapping[str, Tensor], bias: Tensor | None, margin: Size) -> None:
        super().__init__(transformed, bias)
        self.size = image_size(transformed, margin) if "dft_rows" in transformed else None

    def forward(self, x: Tensor) -> Tensor:
        """Two convolutions in the frequency domain, the activation on the image between them."""
        if self.size is not None:
            check_size(self, x, self.size)
        return sandwich_convolution(x, self.tensors(), self.bias)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """||[V^T U]||^2 / 2."""
        return sandwich_convolution_bound(self.tensors(), self.bias, (input_shape[-2], input_shape[-1]))


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
        input_macs="4*b*s**2*c**2 + 12*b*s**3*c",
        input_memory="2*b*s**2*c",
        parameter_operations="real DFT & solves",
        parameter_macs="20*s**2*c**3/3",
        parameter_memory="8*s**2*c**2",
    ),
)
