"""Pooling.

Averages are linear and act along each axis by itself: their matrices are written down by averaging unit vectors, and
their norms are proven. The largest entry of a window moves by no more than the window does; a pixel that is in n
windows counts sqrt(n).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import starmap
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import exactly
from onelip.certification.operations.numbers import lost_powers
from onelip.certification.operations.registered import NN, Call, entries, operation, operation_on_axes, per_axis, root
from onelip.certification.operations.scalar_functions import sum_of_powers
from onelip.certification.traced import Traced
from onelip.proofs.layer_bound import Arithmetic, LayerBound, RoundingError, linear_bound, relative_bound
from onelip.proofs.proven import SAFETY, norm_bound


def _averages(
    call: Call, x: Traced, value: Tensor, along: Callable[[Tensor, int], Tensor], terms: int, factor: float = 1.0
) -> Traced:
    """A map that acts along each axis by a matrix of non-negative entries, found from unit vectors, times a factor."""
    units = [torch.eye(length, dtype=torch.float64)[:, None] for length in x.shape[2:]]
    matrices = [along(unit, axis)[:, 0].mT for axis, unit in enumerate(units)]
    if factor == 1 and all(len(m) == 1 and bool((m * m.numel() - 1).abs().amax() < 1e-12) for m in matrices):
        powers = sum_of_powers(call, x, value, range(2, x.dim()), math.prod(x.shape[2:]))
        if powers is not None:
            return powers
    norm = math.prod(map(norm_bound, matrices)) * abs(factor) * SAFETY
    return call.unary(x, value, linear_bound(norm, norm, terms=terms + 2, outputs=entries(value)))


@operation_on_axes("avg_pool{}d")
def avg_pool(
    call: Call,
    input: Traced,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    axes: int,
) -> Traced:
    """Means of windows."""
    x, divisor = call.images(input, axes), divisor_override
    kernel, sides = per_axis(kernel_size, axes), per_axis(padding, axes)
    steps = per_axis(stride or kernel, axes)
    if divisor is not None and ceil_mode:
        raise call.refused("divisor_override with ceil_mode weighs windows at the edge otherwise; use one of them")
    options = {} if axes == 1 else {"divisor_override": divisor}
    function = getattr(F, f"avg_pool{axes}d")
    value = function(x.value, kernel_size, stride or None, padding, ceil_mode, count_include_pad, **options)

    def along(units: Tensor, axis: int) -> Tensor:
        included = count_include_pad or divisor is not None
        return F.avg_pool1d(units, kernel[axis], steps[axis], sides[axis], ceil_mode, included)

    factor = 1.0 if divisor is None else math.prod(kernel) / divisor
    return _averages(call, x, value, along, math.prod(kernel), factor)


@operation_on_axes("adaptive_avg_pool{}d")
def adaptive_avg_pool(call: Call, input: Traced, output_size: Any, *, axes: int) -> Traced:
    """Means of as many windows as are asked for."""
    x = call.images(input, axes)
    value = getattr(F, f"adaptive_avg_pool{axes}d")(x.value, output_size)

    def along(units: Tensor, axis: int) -> Tensor:
        return F.adaptive_avg_pool1d(units, value.shape[axis + 2])

    terms = math.prod(-(-n // m) + 1 for n, m in zip(x.shape[2:], value.shape[2:], strict=True))
    return _averages(call, x, value, along, terms)


def _most_windows(length: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """In how many windows a pixel can be, along one axis."""
    starts = torch.arange(outputs)[:, None] * stride - padding
    places = (starts + torch.arange(kernel) * dilation).flatten()
    return int(torch.bincount(places[(places >= 0) & (places < length)], minlength=1).amax())


@operation_on_axes("max_pool{}d")
def max_pool(
    call: Call,
    input: Traced,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    axes: int,
) -> Traced:
    """The largest entries of windows."""
    if return_indices:
        raise call.refused("it returns indices too, which jump")
    x = call.images(input, axes)
    value = getattr(F, f"max_pool{axes}d")(x.value, kernel_size, stride or None, padding, dilation, ceil_mode)
    numbers = (per_axis(number, axes) for number in (kernel_size, stride or kernel_size, padding, dilation))
    each = zip(x.shape[2:], value.shape[2:], *numbers, strict=True)
    return call.unary(x, value, LayerBound(root(math.prod(starmap(_most_windows, each))), 0.0, exactly))


def _register_adaptive_max_pool(axes: int) -> None:
    name = f"adaptive_max_pool{axes}d"
    function = getattr(F, name)

    @operation(name, only=(function, getattr(torch if axes == 1 else NN, name)))
    def adaptive_max_pool(call: Call, input: Traced, output_size: Any, return_indices: bool = False) -> Traced:
        if return_indices:
            raise call.refused("it returns indices too, which jump")
        x = call.images(input, axes)
        value = function(x.value, output_size)
        windows = 1
        for length, outputs in zip(x.shape[2:], value.shape[2:], strict=True):
            counts = torch.zeros(length)
            for index in range(outputs):
                counts[index * length // outputs : -(-(index + 1) * length // outputs)] += 1
            windows *= int(counts.amax())
        return call.unary(x, value, LayerBound(root(windows), 0.0, exactly))


for _axes in (1, 2, 3):
    _register_adaptive_max_pool(_axes)


@operation_on_axes("lp_pool{}d")
def lp_pool(
    call: Call,
    input: Traced,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
    *,
    axes: int,
) -> Traced:
    """Norms of windows: each moves by no more than its window."""
    if float(norm_type) != 2 or ceil_mode:
        raise call.refused("only the norm of order 2 of whole windows has a bound; use norm_type=2, ceil_mode=False")
    x, kernel = call.images(input, axes), per_axis(kernel_size, axes)
    value = getattr(F, f"lp_pool{axes}d")(x.value, 2.0, kernel_size, stride)
    steps = per_axis(stride or kernel, axes)
    each = zip(x.shape[2:], value.shape[2:], kernel, steps, (0,) * axes, (1,) * axes, strict=True)
    windows = math.prod(starmap(_most_windows, each))
    return call.unary(x, value, norm_of_entries_bound(root(windows), math.prod(kernel), entries(value)))


def norm_of_entries_bound(lipschitz: float, terms: int, outputs: int, order: float = 2.0) -> LayerBound:
    """Roots of sums of powers."""
    smooth = relative_bound(lipschitz, terms + 64.0, outputs)
    inner = smooth.rounding
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error = inner(arithmetic)
        return RoundingError(error.slope, error.constant + lost_powers(terms, arithmetic, outputs, order) * SAFETY)

    return LayerBound(lipschitz, 0.0, rounding, peak=torch.square)
