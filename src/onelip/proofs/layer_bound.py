"""What is proven about one layer: how far it moves points apart, where it puts zero, how much its rounding does.

For a layer f, as a function in exact arithmetic of the weights that are deployed:

    ||f(x) - f(y)|| <= lipschitz * ||x - y||,      ||f(0)|| <= offset,
    ||computed f(x) - f(x)|| <= slope * ||x|| + constant   in floating-point arithmetic of a given precision.

The errors hold for sums in any order, with or without fused multiply-adds and with or without gradual
underflow: slope and constant come from gamma_n = n u / (1 - n u), the relative error of an inner product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}

SAFETY = 1 + 2.0**-33
"""Factor that covers the rounding of the bounds' own scalar arithmetic: (1 + u)^n <= SAFETY for n <= 2^20."""


def gamma(terms: int, unit_roundoff: float = UNIT_ROUNDOFF[torch.float64]) -> float:
    """gamma_n = n u / (1 - n u), the relative error of an inner product of n terms; infinite where n u >= 1."""
    product = terms * unit_roundoff
    return product / (1 - product) * SAFETY if product < 1 else math.inf


class Arithmetic(NamedTuple):
    """A floating-point format: unit roundoff and smallest normal number."""

    unit_roundoff: float
    tiny: float


FLOAT64 = Arithmetic(UNIT_ROUNDOFF[torch.float64], torch.finfo(torch.float64).tiny)
FLOAT32 = Arithmetic(UNIT_ROUNDOFF[torch.float32], torch.finfo(torch.float32).tiny)


def largest_activation(arithmetic: Arithmetic) -> float:
    """Sums whose magnitudes may exceed this could overflow: then no bound is given."""
    return 2.0**900 if arithmetic.unit_roundoff <= FLOAT64.unit_roundoff else 2.0**100


class RoundingError(NamedTuple):
    """An error of at most slope * ||x|| + constant for an input x."""

    slope: float
    constant: float


Rounding = Callable[[Arithmetic], RoundingError]


class Progress(NamedTuple):
    """A pass through the steps of a layer: float64 activations (batch, ...), and (batch,) how far off they may be.

    `wide` bounds the distance of the activations here from the exact ones, `error` that of the program's.
    """

    value: Tensor
    wide: Tensor
    error: Tensor


Step = Callable[[Progress, Arithmetic], Progress]
Peak = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LayerBound:
    """Lipschitz constant, image of zero and rounding error of one layer. `rounding` is None where not known.

    `rounding` holds for all inputs; `step` finds a smaller error for those at hand: see `measured_rounding`. `peak`
    bounds what is computed on the way for inputs of a norm, where that may be larger than inputs and outputs: squares.
    """

    lipschitz: float
    offset: float
    rounding: Rounding | None
    step: Step | None = None
    peak: Peak | None = None


def exact_bound(lipschitz: float = 1.0) -> LayerBound:
    """A layer that moves, selects, drops or negates entries, or inserts zeros: nothing is rounded."""
    return LayerBound(lipschitz, 0.0, lambda _: RoundingError(0.0, 0.0))


def linear_bound(norm: float, magnitude: float, terms: int, outputs: int, bias_norm: float = 0.0) -> LayerBound:
    """x -> W x + b, each output an inner product of `terms` terms plus a bias.

    `norm` bounds ||W||, `magnitude` the norm of the entrywise |W|, `bias_norm` the norm of b over all `outputs`. The
    error is at most gamma_(terms + 1) (|W| |x| + |b|) entry by entry, and the underflow of products and of inputs at
    most 4 (terms + 1) (1 + |W|) times the smallest normal number.
    """

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        relative = gamma(terms + 1, arithmetic.unit_roundoff)
        underflow = 4 * (terms + 1) * (1 + magnitude) * arithmetic.tiny * math.sqrt(outputs)
        return RoundingError(relative * magnitude + underflow, relative * bias_norm + underflow)

    return LayerBound(norm, bias_norm, rounding)


def relative_bound(lipschitz: float, ulps: float, outputs: int, offset: float = 0.0) -> LayerBound:
    """A layer whose outputs are off by at most `ulps` units of roundoff, relative to lipschitz * ||x|| + offset."""

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        relative = ulps * arithmetic.unit_roundoff
        underflow = 4 * arithmetic.tiny * math.sqrt(outputs)
        return RoundingError(relative * lipschitz, relative * offset + underflow)

    return LayerBound(lipschitz, offset, rounding)


def compose(*layers: LayerBound) -> LayerBound:
    """Layers one after the other: an error made early is carried on by the later Lipschitz constants."""
    lipschitz, offset = 1.0, 0.0
    for layer in layers:
        lipschitz, offset = layer.lipschitz * lipschitz, layer.lipschitz * offset + layer.offset
    known = [layer.rounding for layer in layers if layer.rounding is not None]

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        size, error = RoundingError(1.0, 0.0), RoundingError(0.0, 0.0)  # of the exact activation, of the computed one
        for layer, rounded in zip(layers, known, strict=True):
            made = rounded(arithmetic)
            computed = RoundingError(size.slope + error.slope, size.constant + error.constant)
            error = RoundingError(
                layer.lipschitz * error.slope + made.slope * computed.slope,
                layer.lipschitz * error.constant + made.slope * computed.constant + made.constant,
            )
            size = RoundingError(layer.lipschitz * size.slope, layer.lipschitz * size.constant + layer.offset)
        return RoundingError(error.slope * SAFETY, error.constant * SAFETY)

    steps = [layer.step for layer in layers if layer.step is not None]

    def step(now: Progress, arithmetic: Arithmetic) -> Progress:
        for each in steps:
            now = each(now, arithmetic)
        return now

    def peak(size: Tensor) -> Tensor:
        largest = torch.zeros_like(size)
        for layer in layers:
            largest = largest if layer.peak is None else torch.maximum(largest, layer.peak(size))
            size = layer.lipschitz * size + layer.offset
        return largest

    return LayerBound(
        lipschitz * SAFETY,
        offset * SAFETY,
        rounding if len(known) == len(layers) else None,
        step if len(steps) == len(layers) else None,
        peak if any(layer.peak is not None for layer in layers) else None,
    )


def added_to_input(branch: LayerBound, lipschitz: float) -> LayerBound:
    """x + branch(x), with a Lipschitz constant that the caller has proven; the sum is rounded once."""
    inner = branch.rounding

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        assert inner is not None
        error, unit = inner(arithmetic), arithmetic.unit_roundoff
        slope = error.slope * (1 + unit) + unit * (1 + branch.lipschitz)
        constant = error.constant * (1 + unit) + unit * branch.offset
        return RoundingError(slope * SAFETY, constant * SAFETY)

    return LayerBound(lipschitz, branch.offset, None if inner is None else rounding, peak=branch.peak)


def repeated(layer: LayerBound, count: int) -> LayerBound:
    """One function on each of `count` parts of the input: what does not depend on the input adds up in squares."""
    return side_by_side([layer] * count)


def side_by_side(layers: Sequence[LayerBound]) -> LayerBound:
    """Functions on separate parts of the input, (f_1(x_1), f_2(x_2), ...).

    With the largest constant L, the sum of ||f_i(x_i) - f_i(y_i)||^2 is at most L^2 ||x - y||^2. Likewise, errors
    of slope_i ||x_i|| + constant_i are, by the triangle inequality, together at most max slope_i ||x|| plus the root of
    the sum of the squares of the constants.
    """
    known = [layer.rounding for layer in layers if layer.rounding is not None]

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        errors = [rounded(arithmetic) for rounded in known]
        constant = math.hypot(*(error.constant for error in errors)) * SAFETY
        return RoundingError(max(error.slope for error in errors), constant)

    peaks = [layer.peak for layer in layers if layer.peak is not None]
    return LayerBound(
        max(layer.lipschitz for layer in layers),
        math.hypot(*(layer.offset for layer in layers)) * SAFETY,
        rounding if len(known) == len(layers) else None,
        peak=(lambda size: torch.stack([peak(size) for peak in peaks]).amax(0)) if peaks else None,
    )
