"""SOC: skew orthogonal convolutions (Singla and Feizi, 2021).

The exponential of a skew-symmetric operator L is orthogonal. The kernel of L is normalised by a bound on its norm,
the first of the "Fantastic Four" (for skew kernels the first two coincide), here proven by a Gram iteration.

Two ways to compute it. "frequency" (the default with circular padding): the exponential of one skew-Hermitian
matrix per frequency, exact to rounding in evaluation and by a contraction within 6.2e-4 of it in training, and the
layer is one convolution in the frequency domain. "series": x + L x + L^2 x / 2 + ... by repeated convolution, as
published, which is orthogonal with zero padding too. A truncated series has |sum_(j<=m) (i t)^j / j!| <= 1 near t = 0
only for m = 0 or 3 modulo 4, and such m alone are accepted: the published m = 5 expands by 9e-4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.contract import Request, Traits
from onelip.layers.frequency_conv import FrequencyConv2d
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS, initialise_bias_uniformly
from onelip.layers.kernel_layers import MatrixLinear
from onelip.layers.layer import LayerOptions
from onelip.layers.operators import Matrix, Operator, register_operator_bound
from onelip.layers.registry import MethodInfo
from onelip.linalg.convolution import PaddingMode, adjoint_kernel, same_convolution
from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import Size
from onelip.linalg.norms import gram_norm_bound, over_norm
from onelip.linalg.orthogonal import all_within, skew_exponential, skew_exponential_rows
from onelip.linalg.short_exponential import first_rows, packed_exponentials
from onelip.proofs.exponential_series import series_norm_bound, series_rounding
from onelip.proofs.layer_bound import LayerBound, compose, linear_bound
from onelip.proofs.linear_bounds import bias_norm
from onelip.proofs.proven_convolution import (
    convolution_magnitude_bound,
    convolution_norm_bound,
    same_convolution_of,
)

GRAM_ITERATIONS = 4

TRAINING_DEGREE = 8
"""Of the exponential's Taylor polynomial in training where `short_exponential` is not used: on accelerators, where the
host would have to look at the angle, and for angles above 1. It contracts like that of evaluation, and is off by at
most angle^9 / 9!: 3e-6 for the angle 1."""

LARGEST_ANGLE = {0: 2.8, 3: 1.6}
"""Up to these norms of L a series contracts, by its number of terms modulo 4; with others it expands near 0."""


def training_degree(matrix: Tensor, approximate: bool) -> int | None:
    """`TRAINING_DEGREE` in float32, else what is exact to rounding."""
    return TRAINING_DEGREE if approximate and torch.finfo(matrix.dtype).bits == 32 else None


def unit_skew_kernel(kernel: Tensor) -> Tensor:
    """Skew-symmetric kernel of a convolution of norm at most 1, on every torus and for both paddings."""
    skew = kernel - adjoint_kernel(kernel)  # twice the skew part: the factor cancels
    bound = gram_norm_bound(skew.flatten(-3), GRAM_ITERATIONS)
    patches = math.prod(kernel.shape[-2:])
    return over_norm(skew, bound if patches == 1 else math.sqrt(patches) * bound)


@dataclass(frozen=True)
class ExponentialSeries(Operator):
    """sum_(j <= terms) L^j x / j! by repeated convolution, then the first channels and a bias."""

    generator: Tensor
    terms: int
    channels: int
    padding_mode: PaddingMode

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Fewer inputs than the square L has are padded with zeros."""
        total = power = F.pad(x, (0, 0, 0, 0, 0, self.generator.shape[1] - x.shape[1]))
        for index in range(1, self.terms + 1):
            power = same_convolution(power, self.generator, None, self.padding_mode) / index
            total = total + power
        y = total[:, : self.channels].to(power.dtype)  # the narrow type under autocast, as torch's layers
        return y if bias is None else y + bias.to(y.dtype)[:, None, None]


@register_operator_bound(ExponentialSeries)
def series_bound(operator: ExponentialSeries, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
    """max |p(i t)| over |t| <= ||L||, and what the part of L adds that is not quite skew."""
    kernel, size = operator.generator.detach().double(), (input_shape[-2], input_shape[-1])
    convolution = same_convolution_of(kernel, operator.padding_mode)
    norm, magnitude = convolution_norm_bound(convolution, size), convolution_magnitude_bound(convolution, size)
    symmetric = (kernel + adjoint_kernel(kernel)) / 2
    defect = convolution_norm_bound(same_convolution_of(symmetric, operator.padding_mode), size)
    pixels = math.prod(size)
    counts = operator.terms, kernel[0].numel(), kernel.shape[0] * pixels
    series = LayerBound(
        series_norm_bound(operator.terms, norm, defect), 0.0, lambda a: series_rounding(a, *counts, norm, magnitude)
    )
    return compose(series, linear_bound(1.0, 1.0, 1, operator.channels * pixels, bias_norm(bias, pixels)))


TRAITS = Traits(initialisations=(*PUBLISHED_INITIALISATIONS, "plane"), has_torch_taps=False)


class SOCConv2d(FrequencyConv2d):
    """Convolution by the exponential of a skew-symmetric one.

    `algorithm` is "frequency" (circular padding only), "series", or "auto" for the first that the padding allows.
    `train_terms` and `eval_terms` count the terms of the series after the identity. `angle` is the largest norm of L:
    the layer turns by at most as many radians.
    """

    traits = TRAITS

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Size,
        stride: int | Size = 1,
        padding: str | int | Size = "same",
        dilation: int | Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "circular",
        *,
        algorithm: Literal["auto", "frequency", "series"] = "auto",
        train_terms: int = 4,
        eval_terms: int = 12,
        angle: float = 1.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        geometry = kernel_size, stride, padding, dilation, groups
        super().__init__(in_channels, out_channels, *geometry, bias, padding_mode, **options)
        if algorithm == "auto":
            algorithm = "frequency" if self.padding_mode == "circular" else "series"
        if algorithm not in ("frequency", "series") or (algorithm == "frequency" and self.padding_mode == "zeros"):
            raise InvalidInputError(
                f"SOCConv2d: algorithm={algorithm!r} is not supported with padding_mode={self.padding_mode!r}, "
                'use "series", or "frequency" with circular padding'
            )
        if eval_terms < 3 or eval_terms % 4 not in LARGEST_ANGLE:
            raise InvalidInputError(
                f"SOCConv2d: {eval_terms} terms would expand distances, use 3, 4, 7, 8, 11, 12, ... (0 or 3 modulo 4)"
            )
        if train_terms < 1 or not 0 < angle <= LARGEST_ANGLE[eval_terms % 4]:
            raise InvalidInputError(
                f"SOCConv2d: train_terms={train_terms}, angle={angle} are not supported, use 1 term or more and an "
                f"angle of at most {LARGEST_ANGLE[eval_terms % 4]}"
            )
        self.algorithm, self.train_terms, self.eval_terms = algorithm, train_terms, eval_terms
        # Kept with the weights: a network read from elsewhere has an angle of its own in each layer.
        shape = () if self.groups == 1 else (self.groups,)
        self.register_buffer("angle", torch.full(shape, angle, dtype=self.weight.dtype, device=self.weight.device))

    angle: Tensor

    @property
    def width(self) -> int:
        """Channels of the square operator; fewer inputs are padded with zeros, fewer outputs are the first ones."""
        return max(self.core_in, self.core_out)

    @property
    def size_dependent(self) -> bool:
        """A series of convolutions does not."""
        return self.algorithm == "frequency" and super().size_dependent

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """A square kernel."""
        return {**super().tensor_shapes(), "weight": (self.width, self.width, *self.geometry.core_sides)}

    def default_init(self) -> str:
        """A rotation of two channels only: near the identity, where normalising a random kernel never starts."""
        return "plane"

    def initialise_as_published(self, tensors: dict[str, Tensor]) -> None:
        """Normal entries of deviation c^(-1/2), and a bias as torch's default for c inputs."""
        nn.init.normal_(tensors["weight"], std=self.width**-0.5)
        initialise_bias_uniformly(tensors.get("bias"), self.core_out)

    def unconstrained_kernel(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The skew kernel of norm at most `angle`."""
        return tensors["angle"][..., None, None, None, None] * unit_skew_kernel(tensors["weight"])

    def constrain(self, matrices: Tensor, request: Request) -> Tensor:
        """Exponentials, cut to shape."""
        return skew_exponential(matrices, training_degree(matrices, request.approximate))[
            ..., : self.core_out, : self.core_in
        ]

    def packed_matrices(
        self, kernel: Tensor, torus: Size, tensors: Mapping[str, Tensor], request: Request
    ) -> Tensor | None:
        """`short_exponential` for angles up to 1, for which it is made."""
        if not training_degree(kernel, request.approximate) or not all_within(tensors["angle"], 1.0):
            return None
        return packed_exponentials(kernel, torus, self.core_out, self.core_in)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Operator:
        """The exponential at every frequency, or the normalised skew kernel alone for the series."""
        if self.algorithm == "series":
            terms = self.train_terms if request.training else self.eval_terms
            return ExponentialSeries(self.unconstrained_kernel(tensors), terms, self.core_out, self.padding_mode)
        return super().transform_tensors(tensors, request)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{super().extra_repr()}, algorithm={self.algorithm}"


class SOCLinear(MatrixLinear):
    """Linear layer with the exponential of a skew-symmetric matrix.

    Of a layer that is not square, the m = min(in, out) rows (or columns) that are used are those of exp(A) for
    A = [[S, B], [-B^T, 0]]: a weight of the shape that the layer has determines A, and no square is computed.
    """

    traits = TRAITS

    def initialise_as_published(self, tensors: dict[str, Tensor]) -> None:
        """As for the convolution."""
        nn.init.normal_(tensors["weight"], std=max(tensors["weight"].shape) ** -0.5)
        initialise_bias_uniformly(tensors.get("bias"), self.core_out)

    def default_init(self) -> str:
        """As for the convolution."""
        return "plane"

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """exp of the normalised skew matrix, or some rows of it."""
        weight = tensors["weight"]
        if self.core_out > self.core_in:
            return Matrix(exponential_rows(weight.mT, request.approximate).mT)
        return Matrix(exponential_rows(weight, request.approximate, request.rows))


def exponential_rows(weight: Tensor, approximate: bool = False, in_use: int | None = None) -> Tensor:
    """The first m rows of exp(A / s) for a weight (..., m, n) with m <= n; s >= ||A||, as ||A|| <= ||S|| + ||B||.

    Only those in use, where that is faster.
    """
    rows = weight.shape[-2]
    skew = (weight[..., :rows] - weight[..., :rows].mT) / 2
    bound = gram_norm_bound(skew, GRAM_ITERATIONS)
    if rows == weight.shape[-1]:
        unit = over_norm(skew, bound)
        degree = training_degree(skew, approximate)
        if degree is None or not is_cpu(skew.device):
            return skew_exponential(unit, degree)
        if in_use is not None:
            return first_rows(unit, in_use)
        return packed_exponentials(unit[..., None, None], (1, 1), rows, rows).squeeze(-3).mT
    rest = weight[..., rows:]
    bound = bound + gram_norm_bound(rest, GRAM_ITERATIONS)
    return skew_exponential_rows(over_norm(torch.cat([skew, rest], dim=-1), bound))


METHOD = MethodInfo(
    key="soc",
    guarantee="orthogonal",
    conv=SOCConv2d,
    linear_layer=SOCLinear,
    train_eval_difference="with algorithm='series' training adds train_terms=4 terms of the series, evaluation 12",
    training_approximation="the exponential by a contraction of degree 4 for angles up to 1, beyond that by the Taylor "
    "polynomial of degree 8, off by at most angle^9 / 9!",
    training_error=7e-4,
)
