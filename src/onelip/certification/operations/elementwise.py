"""Functions of each entry: activations, absolute values, clamping. The constant is the largest slope.

Those of GELU, SiLU, Mish and Hardswish are above 1. Where the numbers of a function are no floating-point numbers of
the program (the limits of a clamp), what it really uses is within one rounding of them, which counts as rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import Entrywise, Jumps, Range, exactly
from onelip.certification.operations.numbers import magnitude, survives, surviving, with_numbers
from onelip.certification.operations.registered import Call, Limits, entries, operation
from onelip.certification.ranges import affine, clamped, magnitudes, rising
from onelip.certification.traced import Traced
from onelip.proofs.layer_bound import FLOAT32, Arithmetic, LayerBound, Rounding, RoundingError, relative_bound
from onelip.proofs.proven import SAFETY

_CANCELS = 0.25
"""e^x - 1 is computed as such by some versions of torch (2.6 for one): near zero it is off by some roundings of 1, not
of x, which is this part of `LIBRARY_ULPS`."""

LIBRARY_ULPS = 32.0
"""Units of roundoff within which exponentials and hyperbolic functions, and what is made of them, are computed."""

_FIXED: dict[str, tuple[float, float, Range | None]] = {
    # name: (largest slope, rounded upwards; a number that the value at zero does not exceed, nor errors relative to it;
    # where its values are)
    "tanh": (1.0, 0.0, (-1.0, 1.0)),
    "softsign": (1.0, 0.0, (-1.0, 1.0)),
    "tanhshrink": (1.0, 0.0, None),
    "sin": (1.0, 0.0, (-1.0, 1.0)),
    "cos": (1.0, 1.0, (-1.0, 1.0)),
    "atan": (1.0, 0.0, (-math.pi / 2, math.pi / 2)),
    "asinh": (1.0, 0.0, None),
    "erf": (1.12838, 0.0, (-1.0, 1.0)),
    "erfc": (1.12838, 1.0, (0.0, 2.0)),
    "sigmoid": (0.25, 0.5, (0.0, 1.0)),
    "logsigmoid": (1.0, 0.6932, (-math.inf, 0.0)),
    "hardsigmoid": (0.1666668, 0.5, (0.0, 1.0)),
    "silu": (1.09984, 0.0, None),
    "mish": (1.08850, 0.0, None),
    "hardswish": (1.5, 0.0, None),
    "selu": (1.75810, 0.5, None),
}
_OTHER_NAMES = {"atan": "arctan", "asinh": "arcsinh", "sigmoid": "expit", "logsigmoid": "log_sigmoid"}


def _register_fixed(name: str, slope: float, at_zero: float, ends: Range | None) -> None:
    function: Callable[..., Tensor] = getattr(F, name, None) or getattr(torch, name)
    limits: Limits | None = None if ends is None else lambda _: ends

    @operation(name, *([_OTHER_NAMES[name]] if name in _OTHER_NAMES else []))
    def apply(call: Call, input: Traced) -> Traced:
        count = entries(input)
        bound = relative_bound(slope, LIBRARY_ULPS, count, at_zero * math.sqrt(count) * SAFETY)
        return call.entrywise(input, function(input.value), bound, limits)


for _name, _row in _FIXED.items():
    _register_fixed(_name, *_row)


def _register_exact(function: Callable[[Tensor], Tensor], limits: Limits, *names: str) -> None:
    @operation(*names)
    def apply(call: Call, input: Traced) -> Traced:
        return call.entrywise(input, function(input.value), LayerBound(1.0, 0.0, exactly), limits)


_register_exact(torch.relu, clamped(0.0, math.inf), "relu")
_register_exact(torch.abs, magnitudes, "abs", "absolute", "__abs__")
_register_exact(torch.neg, affine(-1.0, 0.0), "neg", "negative", "__neg__")


operation("positive", "__pos__")(lambda call, input: input)


@operation("clamp", "clip", "clamp_min")
def clamp(call: Call, input: Traced, min: Any = None, max: Any = None) -> Traced:
    """x cut off at two limits, numbers or tensors."""
    why = "its limits must not depend on the input"
    low, high = call.constant(min, why), call.constant(max, why)
    for limit in (low, high):
        if isinstance(limit, Tensor) and torch.broadcast_shapes(limit.shape, input.shape) != input.shape:
            raise call.refused("its limits would repeat the input")
    value = torch.clamp(input.value, low, high)
    if any(isinstance(limit, Tensor) for limit in (low, high)):
        count, size = entries(input), magnitude(low, high)
        bound = LayerBound(1.0, size * math.sqrt(count) * SAFETY, limits_rounding(1.0, size, count))
        return call.entrywise(input, value, bound)
    limits = [float(limit) for limit in (low, high) if limit is not None]
    ends = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    return call.entrywise(input, value, _clamped(call, limits, low, high, entries(input)), clamped(*ends))


def _clamped(call: Call, limits: list[float], low: Any, high: Any, count: int) -> LayerBound:
    if any(math.isnan(limit) for limit in limits):
        raise call.refused("its limits are not numbers")
    at_zero = min(max(0.0, -math.inf if low is None else float(low)), math.inf if high is None else float(high))
    held = all(float(torch.tensor(limit, dtype=torch.float32)) == limit for limit in limits)
    held = held and all(math.isinf(limit) or survives(limit, FLOAT32) for limit in limits)
    size = max((abs(limit) for limit in limits if math.isfinite(limit)), default=0.0)
    rounding = exactly if held else limits_rounding(1.0, size, count)
    return LayerBound(1.0, abs(at_zero) * math.sqrt(count) * SAFETY, rounding)


def limits_rounding(ulps: float, size: float, count: int) -> Rounding:
    """Numbers of this size are `ulps` roundings away from what was asked for."""

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        return RoundingError(
            0.0, (ulps * arithmetic.unit_roundoff * size + arithmetic.tiny) * math.sqrt(count) * SAFETY
        )

    return rounding


operation("clamp_max")(lambda call, input, max: clamp(call, input, None, max))
operation("hardtanh")(lambda call, input, min_val=-1.0, max_val=1.0: clamp(call, input, min_val, max_val))
operation("relu6")(lambda call, input: clamp(call, input, 0.0, 6.0))


def _sloped(
    call: Call,
    x: Traced,
    value: Tensor,
    slope: float,
    *numbers: float,
    offset: float = 0.0,
    ulps: float = LIBRARY_ULPS,
    limits: Limits | None = None,
) -> Traced:
    """A function with this largest slope, which uses these numbers."""
    count = entries(x)
    bound = relative_bound(slope * SAFETY, ulps, count, offset * math.sqrt(count) * SAFETY)
    return call.entrywise(x, value, with_numbers(bound, *numbers), limits)


def _steepest(*slopes: float) -> float:
    """The largest magnitude, infinite where a slope is no number."""
    return math.inf if any(map(math.isnan, slopes)) else max(map(abs, slopes))


@operation("leaky_relu")
def leaky_relu(call: Call, input: Traced, negative_slope: float = 0.01) -> Traced:
    """The larger of the two slopes."""
    function = partial(F.leaky_relu, negative_slope=negative_slope)
    value, steepest = function(input.value), _steepest(1.0, negative_slope)
    limits = rising(function) if negative_slope >= 0 else None
    return _sloped(call, input, value, steepest, negative_slope, ulps=4, limits=limits)


@operation("rrelu")
def rrelu(call: Call, input: Traced, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Traced:
    """In evaluation a leaky ReLU with the mean slope."""
    if training:
        raise call.refused("it draws random slopes in training mode")
    value, slope = F.rrelu(input.value, lower, upper, training=False), (lower + upper) / 2
    return _sloped(call, input, value, _steepest(1.0, slope), slope, ulps=8)


@operation("prelu")
def prelu(call: Call, input: Traced, weight: Any) -> Traced:
    """The larger of 1 and the learned slopes."""
    slopes = call.constant(weight, "its slopes must not depend on the input")
    return _sloped(call, input, F.prelu(input.value, slopes), _steepest(1.0, magnitude(slopes)), ulps=4)


@operation("elu")
def elu(call: Call, input: Traced, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Traced:
    """alpha (e^x - 1) below zero: slopes up to alpha on that side."""
    if not input_scale >= 0:
        raise call.refused(f"input_scale={input_scale} must be at least 0: below it is an exponential of -x")
    value, height = torch.ops.aten.elu(input.value, alpha, scale, input_scale), scale * alpha
    steepest, numbers = _steepest(scale, height * input_scale), (alpha, scale, input_scale, height)
    limits = rising(lambda t: torch.ops.aten.elu(t, alpha, scale, input_scale)) if min(numbers) >= 0 else None
    return _sloped(call, input, value, steepest, *numbers, offset=abs(height) * _CANCELS, limits=limits)


@operation("celu")
def celu(call: Call, input: Traced, alpha: float = 1.0) -> Traced:
    """alpha (e^(x / alpha) - 1) below zero: slopes up to 1 for a positive alpha."""
    if not alpha > 0:
        raise call.refused(f"alpha={alpha} must be positive")
    return _sloped(call, input, F.celu(input.value, alpha), 1.0, alpha, 1 / alpha, offset=alpha * _CANCELS)


@operation("gelu")
def gelu(call: Call, input: Traced, approximate: str = "none") -> Traced:
    """x Phi(x): its largest slope, at sqrt(2), is 1.12890; that of the form with tanh 1.12908."""
    return _sloped(call, input, F.gelu(input.value, approximate=approximate), 1.1292)


@operation("softplus")
def softplus(call: Call, input: Traced, beta: float = 1.0, threshold: float = 20.0) -> Traced:
    """log(1 + e^(beta x)) / beta. Beyond the threshold torch returns x, off by log(1 + e^-threshold) / beta.

    That is a jump. It counts as rounding in radii; there is no Lipschitz constant where it is larger than that.
    """
    if not beta > 0:
        raise call.refused(f"beta={beta} must be positive")
    count, below = entries(input), min(threshold, 700.0)  # log(1 + e^-t) <= max(0, -t) + log(1 + e^-|t|)
    jump = (max(0.0, -below) + math.log1p(math.exp(-abs(below)))) / beta * SAFETY
    smooth = relative_bound(1.0, LIBRARY_ULPS, count, 0.6932 / beta * math.sqrt(count) * SAFETY)
    inner = smooth.rounding
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error = inner(arithmetic)
        return RoundingError(error.slope, error.constant + jump * math.sqrt(count) * SAFETY)

    def peak(size: Tensor) -> Tensor:
        return (beta * size).clamp(max=threshold).exp()

    value = F.softplus(input.value, beta, threshold)
    bound = LayerBound(1.0, smooth.offset, surviving(rounding, beta, 1 / beta), peak=peak)
    jumps = () if jump * beta <= FLOAT32.unit_roundoff * threshold else (Jumps(jump),)
    return call.unary(input, value, bound, Entrywise(), *jumps, limits=lambda _: (0.0, math.inf))


@operation("softshrink")
def softshrink(call: Call, input: Traced, lambd: float = 0.5) -> Traced:
    """x moved towards zero by lambda, and zero if it is nearer."""
    count = entries(input)
    smooth = relative_bound(1.0, 4.0, count, abs(lambd) * math.sqrt(count) * SAFETY)
    return call.entrywise(input, F.softshrink(input.value, lambd), smooth)


@operation("threshold")
def threshold(call: Call, input: Traced, threshold: float, value: float) -> Traced:
    """Continuous only where what replaces small entries is the threshold itself."""
    if threshold != value:
        raise call.refused("it jumps at its threshold; use value=threshold, or relu")
    return clamp(call, input, threshold)


@operation(
    "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"
)
def dropout(call: Call, input: Traced, p: float = 0.5, training: bool = True, train: bool | None = None) -> Traced:
    """The identity in evaluation."""
    if (training if train is None else train) and p > 0:
        raise call.refused("dropout is random where training=True; certificates speak of evaluation mode")
    return input
