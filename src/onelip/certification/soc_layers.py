"""Bounds of SOC: a convolution in the frequency domain, or the series p(L) = sum_(j <= m) L^j / j! of a kernel.

A skew-symmetric L is normal with eigenvalues i t, |t| <= ||L||, for circular and for zero padding. So
||p(L)|| <= max |p(i t)| over |t| <= ||L||, and q(t^2) = |p(i t)|^2 is a polynomial with rational coefficients, computed
exactly. The symmetric part E of a kernel that is not quite skew adds ||p(S + E) - p(S)|| <= ||E|| exp(||S|| + ||E||).
"""

from __future__ import annotations

import math
from fractions import Fraction

from torch import Tensor

from onelip.certification.convolution_layers import LAYER_METHODS, bias_norm, core_image, used_bias
from onelip.certification.registry import Shape, bound_for
from onelip.certification.spectral_layers import conv_bound
from onelip.layers.convolution import adjoint_kernel
from onelip.layers.soc import FusedSOCConv2d, SOCConv2d
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import Arithmetic, LayerBound, RoundingError, compose, linear_bound
from onelip.linalg.proven import SAFETY, gamma
from onelip.linalg.proven_convolution import (
    convolution_magnitude_bound,
    convolution_norm_bound,
    same_convolution_of,
)

_INTERVALS = 1024


def squared_modulus(terms: int) -> list[Fraction]:
    """Coefficients of q(t^2) = |sum_(j <= terms) (i t)^j / j!|^2 in powers of t^2."""
    cosine = [Fraction((-1) ** j, math.factorial(2 * j)) for j in range(terms // 2 + 1)]
    sine = [Fraction((-1) ** j, math.factorial(2 * j + 1)) for j in range((terms + 1) // 2)]
    coefficients = [Fraction(0)] * (2 * max(len(cosine), len(sine)) + 1)
    for shift, series in ((0, cosine), (1, sine)):
        for i, first in enumerate(series):
            for j, second in enumerate(series):
                coefficients[i + j + shift] += first * second
    return coefficients


def series_norm_bound(terms: int, norm: float) -> float:
    """Upper bound of max |p(i t)| over |t| <= norm: on short intervals, each term of q at its larger end."""
    if not norm < 1e6:
        return math.inf
    coefficients = [float(c) for c in squared_modulus(terms)]
    largest = 0.0
    for index in range(_INTERVALS):
        low, high = (norm**2 * (index + step) / _INTERVALS for step in (0, 1))
        value = math.fsum(c * (high if c > 0 else low) ** k for k, c in enumerate(coefficients))
        magnitude = math.fsum(abs(c) * high**k for k, c in enumerate(coefficients))
        largest = max(largest, value + 2.0**-40 * magnitude)
    return math.sqrt(largest) * SAFETY


def series_bound(kernel: Tensor, terms: int, size: Size, padding_mode: str) -> LayerBound:
    """x -> sum_(j <= terms) L^j x / j! by repeated convolution."""
    kernel = kernel.detach().double()
    convolution = same_convolution_of(kernel, padding_mode)
    norm, magnitude = convolution_norm_bound(convolution, size), convolution_magnitude_bound(convolution, size)
    symmetric = (kernel + adjoint_kernel(kernel)) / 2
    defect = 0.0
    if bool((symmetric != 0).any()):
        defect = convolution_norm_bound(same_convolution_of(symmetric, padding_mode), size)
    perturbed = defect * math.exp(min(norm + 2 * defect, 700.0))
    lipschitz = (series_norm_bound(terms, norm + defect) + perturbed) * SAFETY
    inner = kernel[0].numel()
    outputs = kernel.shape[0] * size[0] * size[1]

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        # power_j = fl(L power_(j-1) / j): sizes, and errors that the norm of L carries on
        relative = gamma(inner + 2, arithmetic.unit_roundoff)
        size_j, error_j, total_size, total_error = 1.0, 0.0, 1.0, 0.0
        for j in range(1, terms + 1):
            error_j = (norm * error_j + relative * magnitude * (size_j + error_j)) / j
            size_j = norm * size_j / j
            total_size, total_error = total_size + size_j, total_error + error_j
        summed = gamma(terms, arithmetic.unit_roundoff) * (total_size + total_error)
        underflow = 8 * terms * (inner + 1) * (1 + magnitude) * arithmetic.tiny * math.sqrt(outputs)
        underflow *= math.exp(min(norm, 700.0))
        return RoundingError((total_error + summed) * SAFETY + underflow, underflow)

    return LayerBound(lipschitz, 0.0, rounding)


def _added_bias(bias: Tensor | None, channels: int, size: Size) -> LayerBound:
    pixels = size[0] * size[1]
    return linear_bound(1.0, 1.0, terms=1, outputs=channels * pixels, bias_norm=bias_norm(bias, pixels))


@bound_for(SOCConv2d, methods=LAYER_METHODS)
def _soc(layer: SOCConv2d, shape: Shape) -> LayerBound:
    transformed = layer.transformed((shape[-2], shape[-1]))
    if layer.algorithm == "frequency":
        return conv_bound(layer, transformed, shape)
    bias = used_bias(layer, layer.out_channels)
    size = core_image(layer, shape)
    terms = layer.train_terms if layer.training else layer.eval_terms
    series = series_bound(transformed["generator"], terms, size, layer.padding_mode)
    return compose(series, _added_bias(bias, layer.out_channels, size))


@bound_for(FusedSOCConv2d)
def _fused_soc(module: FusedSOCConv2d, shape: Shape) -> LayerBound:
    size = shape[-2], shape[-1]
    series = series_bound(module.get_parameter("generator"), module.terms, size, module.padding_mode)
    return compose(series, _added_bias(module.bias, module.channels, size))
