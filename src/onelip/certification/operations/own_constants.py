"""Functions that have a constant of their own: distances, smooth maxima, and normalisations with a positive eps.

v / sqrt(|v|^2 / n + eps) has the constant 1 / sqrt(eps), at zero: true and large. `F.normalize` divides by at least its
eps, and has the constant 1 / eps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.operations.elementwise import LIBRARY_ULPS
from onelip.certification.operations.numbers import lost_powers, magnitude, with_numbers
from onelip.certification.operations.registered import Call, entries, operation, root
from onelip.certification.traced import Traced
from onelip.proofs.layer_bound import Arithmetic, LayerBound, Rounding, RoundingError, relative_bound
from onelip.proofs.proven import SAFETY, gamma

operation("softmin")(lambda call, input, dim=None, _stacklevel=3, dtype=None: F.softmax(-input, dim, dtype=dtype))


@operation("nan_to_num")
def nan_to_num(call: Call, input: Traced, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Traced:
    """The identity: what is infinite has no certificate."""
    return call.chosen(input, torch.nan_to_num(input.value))


def _register_of_two(name: str, function: Any, ulps: float, offset: float) -> None:
    @operation(name)
    def of_two(call: Call, input: Any, other: Any) -> Traced:
        """Its gradient with respect to both is no longer than 1."""
        values = [part.value if isinstance(part, Traced) else call.constant(part, "") for part in (input, other)]
        value = function(*values)
        traced = [part for part in (input, other) if isinstance(part, Traced)]
        if any(part.dim() != value.dim() for part in traced) or len(value) != call.tracer.batch:
            raise call.refused("its shapes do not keep the batch first; reshape before")
        count = entries(value)
        pairs = [(part, root(count // max(1, entries(part)))) for part in traced]
        fixed = sum(
            magnitude(v) for part, v in zip((input, other), values, strict=True) if not isinstance(part, Traced)
        )

        def rounding(arithmetic: Arithmetic) -> RoundingError:
            relative = ulps * arithmetic.unit_roundoff
            lost = math.sqrt(8 * arithmetic.tiny) + relative * (offset + fixed)
            return RoundingError(relative * SAFETY, lost * math.sqrt(count) * SAFETY)

        return call.add(pairs, value, rounding, joint=True)


_register_of_two("logaddexp", torch.logaddexp, LIBRARY_ULPS, 1.0)
_register_of_two("logaddexp2", torch.logaddexp2, LIBRARY_ULPS, 1.0)
_register_of_two("hypot", torch.hypot, 8.0, 0.0)


@operation("cdist")
def cdist(call: Call, x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = None) -> Traced:
    """Distances to constant points: each moves by no more than its point."""
    x, points = (x1, x2) if isinstance(x1, Traced) else (x2, x1)
    fixed = call.constant(points, "distances between two values that depend on the input are not looked into")
    if x.dim() < 2 or fixed.dim() != 2 or (x is x2 and x.dim() == 2) or not p >= 1:
        raise call.refused("it needs inputs (batch, ..., features), one matrix of constant points, and p of at least 1")
    value = torch.cdist(x1.value if x is x1 else fixed, fixed if x is x1 else x.value, p)
    features, order = fixed.shape[1], float(p)
    constant = features ** max(0.0, 1 / order - 0.5) * root(len(fixed)) * SAFETY
    offset = float(torch.linalg.vector_norm(fixed)) * features ** max(0.0, 1 / order - 0.5) * SAFETY
    offset *= math.sqrt(math.prod(x.shape[1:-1]))
    by_products = order == 2 and compute_mode != "donot_use_mm_for_euclid_dist"
    return call.unary(
        x,
        value,
        LayerBound(
            constant,
            offset,
            _distance_rounding(features, constant, offset, entries(value), order, by_products),
            peak=lambda size: (2 * (size + offset)) ** (1.0 if math.isinf(order) else max(order, 2.0)),
        ),
    )


def _distance_rounding(
    terms: int, constant: float, offset: float, count: int, order: float, by_products: bool
) -> Rounding:
    """Relative; |x|^2 - 2 x y + |y|^2 cancels, and leaves the root of its rounding error."""

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        unit = gamma(2 * terms + 64, arithmetic.unit_roundoff)
        relative = 2 * math.sqrt(unit) if by_products else 2 * unit
        lost = lost_powers(terms, arithmetic, count, order)
        return RoundingError(relative * constant * SAFETY, (relative * offset + lost) * SAFETY)

    return rounding


@operation("pairwise_distance")
def pairwise_distance(call: Call, x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Traced:
    """The norm of x - y + eps."""
    return torch.linalg.vector_norm(x1 - x2 + eps, p, dim=-1, keepdim=keepdim)


# Normalisation


_LEAST_EPS = 1e-30
"""Squares that float32 loses are nothing beside it."""


def _normalised(call: Call, x: Traced, eps: float | None, length: int, run: Any, weight: Any, bias: Any) -> Traced:
    """Parts of so many entries, centred or not, divided by sqrt(their mean square + eps): max |weight| / sqrt(eps)."""
    if eps is None or not eps >= _LEAST_EPS:
        raise call.refused(
            f"without an eps of at least {_LEAST_EPS} it has no Lipschitz constant; use onelip.layers.LayerCentering"
        )
    numbers = [call.constant(t, "its weights must not depend on the input") for t in (weight, bias)]
    value = run(x.value, *numbers)
    largest = magnitude(1.0 if weight is None else numbers[0])
    constant = largest / math.sqrt(eps) * SAFETY
    offset = magnitude(numbers[1]) * math.sqrt(entries(value)) * SAFETY
    bound = relative_bound(constant, 8.0 * length + 64, entries(value), offset)
    bound = with_numbers(replace(bound, peak=torch.square), eps, largest)
    end = largest * math.sqrt(length) + offset
    return call.unary(x, value, bound, limits=lambda _: (-end, end))


@operation("layer_norm", only=(F.layer_norm, torch.layer_norm))
def layer_norm(
    call: Call, input: Traced, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: bool
) -> Traced:
    """Each input by itself, or parts of it."""
    shape = _behind_batch(call, input, normalized_shape)
    return _normalised(
        call, input, eps, math.prod(shape), lambda t, w, b: F.layer_norm(t, shape, w, b, eps), weight, bias
    )


@operation("rms_norm", only=(F.rms_norm, torch.rms_norm))
def rms_norm(call: Call, input: Traced, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Traced:
    """The same, not centred."""
    shape = _behind_batch(call, input, normalized_shape)
    return _normalised(call, input, eps, math.prod(shape), lambda t, w, _: F.rms_norm(t, shape, w, eps), weight, None)


def _behind_batch(call: Call, x: Traced, shape: Any) -> tuple[int, ...]:
    if len(shape) >= x.dim():
        raise call.refused("it normalises over the batch")
    return tuple(shape)


@operation("group_norm", only=(F.group_norm, torch.group_norm))
def group_norm(
    call: Call, input: Traced, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: bool
) -> Traced:
    """Groups of channels."""
    length = entries(input) // num_groups
    result = _normalised(call, input, eps, length, lambda t, w, b: F.group_norm(t, num_groups, w, b, eps), weight, bias)
    result.node.rounding = _of_cancelled_variances(result.node.rounding, result.node.coefficients[0], length)
    return result


def _of_cancelled_variances(inner: Rounding | None, constant: float, length: int) -> Rounding:
    """Where channels come last in memory, torch takes variances as E[x^2] - E[x]^2, off by d = gamma E[x^2].

    With s = variance + eps and n entries, the quotient is off by sqrt(n) |sqrt(s / s') - 1| <= sqrt(n d / eps).
    """
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error, relative = inner(arithmetic), math.sqrt(gamma(4 * length + 64, arithmetic.unit_roundoff))
        return RoundingError((error.slope + relative * constant) * SAFETY, error.constant)

    return rounding


@operation("instance_norm", only=(F.instance_norm,))
def instance_norm(
    call: Call,
    input: Traced,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Traced:
    """Each channel of each input."""
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)  # pyright: ignore

    def run(t: Tensor, w: Any, b: Any) -> Tensor:
        return F.instance_norm(t, None, None, w, b, True, 0.0, eps)

    return _normalised(call, input, eps, math.prod(input.shape[2:]), run, weight, bias)


@operation("normalize", only=(F.normalize,))
def normalize(call: Call, input: Traced, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Traced:
    """x / max(|x|, eps): 1 / eps."""
    if p != 2:
        raise call.refused("only norms of order 2 have a bound here")
    if not eps >= 1e-4:
        raise call.refused(
            "it divides by the norm of the input, which expands near zero; scale the input by a constant"
        )
    return input / torch.linalg.vector_norm(input, dim=call.dim(input, dim), keepdim=True).clamp(min=eps)


@operation("local_response_norm", only=(F.local_response_norm,))
def local_response_norm(
    call: Call, input: Traced, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Traced:
    """x_c / (k + alpha mean of squares)^beta.

    With s for the sum, the slope of entry c in x_d is s^-beta if c = d, minus x_c x_d (2 alpha / n) beta s^(-beta - 1),
    which is at most beta k^-beta, as 2 |x_c x_d| alpha / n <= s, and twice that for c = d: n + 1 diagonals together.
    """
    if not (k > 0 and alpha >= 0 and beta >= 0):
        raise call.refused("it needs a positive k, and alpha and beta of at least 0")
    constant = (1 + beta * (size + 1)) * k**-beta * SAFETY
    value = F.local_response_norm(input.value, size, alpha, beta, k)
    bound = replace(relative_bound(constant, 2 * LIBRARY_ULPS + 4 * size, entries(value)), peak=torch.square)
    return call.unary(input, value, with_numbers(bound, k, alpha, beta))


@operation("fractional_max_pool2d")
def fractional_max_pool2d(
    call: Call,
    input: Traced,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Traced:
    """Windows that begin at least floor(length / outputs) apart, but for the last."""
    if _random_samples is None or return_indices or output_ratio is not None:
        raise call.refused("its windows are random; use max_pool2d, or fixed samples and an output_size")
    samples = call.constant(_random_samples, "its samples must not depend on the input")
    value = F.fractional_max_pool2d(input.value, kernel_size, output_size, _random_samples=samples)
    windows = 1
    kernels = (kernel_size,) * 2 if isinstance(kernel_size, int) else kernel_size
    for length, outputs, kernel in zip(input.shape[2:], value.shape[2:], kernels, strict=True):
        step = max(1, (length - kernel) // max(1, outputs - 1))
        windows *= min(outputs, -(-kernel // step) + 1)
    return call.chosen(input, value, root(windows))
