"""Sums, means, norms and pooling.

Averages are linear and act along each axis by itself: their matrices are written down by averaging unit vectors, and
their norms are proven. The largest entry of a window moves by no more than the window does; a pixel that is in n
windows counts sqrt(n).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import exactly
from onelip.certification.operations.registered import NN, Call, entries, operation
from onelip.certification.traced import Traced
from onelip.linalg.layer_bound import Arithmetic, LayerBound, RoundingError, linear_bound, relative_bound
from onelip.linalg.proven import SAFETY, norm_bound


def _numbers(value: Any, axes: int) -> tuple[int, ...]:
    return (
        (int(value),) * axes
        if isinstance(value, int)
        else tuple(int(v) for v in value) * (axes if len(value) == 1 else 1)
    )


def _averages(call: Call, x: Traced, value: Tensor, axes: Sequence[Tensor], factor: float, terms: int) -> Traced:
    """A map that acts along each axis by a matrix of non-negative entries, times a factor."""
    norm = math.prod(norm_bound(matrix) for matrix in axes) * abs(factor) * SAFETY
    return call.unary(x, value, linear_bound(norm, norm, terms=terms + 2, outputs=entries(value)))


def _per_axis(function: Callable[[Tensor, int], Tensor], size: Sequence[int]) -> list[Tensor]:
    """The matrices (out, in) of a map along each axis, applied to unit vectors."""
    return [
        function(torch.eye(length, dtype=torch.float64)[:, None], axis)[:, 0].mT for axis, length in enumerate(size)
    ]


def _avg_pool(
    call: Call,
    x: Traced,
    axes: int,
    window: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Traced:
    if x.dim() != axes + 2:
        raise call.refused("it needs a batch of images with channels")
    kernel = _numbers(window, axes)
    steps = kernel if stride is None or stride == [] else _numbers(stride, axes)
    sides = _numbers(padding, axes)
    if divisor is not None and ceil_mode:
        raise call.refused("divisor_override with ceil_mode weighs windows at the edge otherwise; use one of them")
    options = {} if axes == 1 else {"divisor_override": divisor}
    function: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[axes - 1]
    value = function(x.value, window, stride or None, padding, ceil_mode, count_include_pad, **options)

    def along(units: Tensor, axis: int) -> Tensor:
        included = count_include_pad or divisor is not None
        return F.avg_pool1d(units, kernel[axis], steps[axis], sides[axis], ceil_mode, included)

    factor = 1.0 if divisor is None else math.prod(kernel) / divisor
    return _averages(call, x, value, _per_axis(along, x.shape[2:]), factor, math.prod(kernel))


def _adaptive_average(call: Call, x: Traced, axes: int, output_size: Any) -> Traced:
    if x.dim() != axes + 2:
        raise call.refused("it needs a batch of images with channels")
    function: Any = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[axes - 1]
    value = function(x.value, output_size)

    def along(units: Tensor, axis: int) -> Tensor:
        return F.adaptive_avg_pool1d(units, value.shape[axis + 2])

    terms = math.prod(-(-n // m) + 1 for n, m in zip(x.shape[2:], value.shape[2:], strict=True))
    return _averages(call, x, value, _per_axis(along, x.shape[2:]), 1.0, terms)


def _most_windows(length: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """In how many windows a pixel can be, along one axis."""
    starts = torch.arange(outputs)[:, None] * stride - padding
    places = (starts + torch.arange(kernel) * dilation).flatten()
    return int(torch.bincount(places[(places >= 0) & (places < length)], minlength=1).amax())


def _root(windows: int) -> float:
    return 1.0 if windows <= 1 else math.sqrt(windows) * SAFETY


def _max_pool(
    call: Call,
    x: Traced,
    axes: int,
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Traced:
    if return_indices:
        raise call.refused("it returns indices too, which jump")
    if x.dim() != axes + 2:
        raise call.refused("it needs a batch of images with channels")
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]
    value = function(x.value, window, stride or None, padding, dilation, ceil_mode)
    kernel, sides, spread = (_numbers(number, axes) for number in (window, padding, dilation))
    steps = kernel if stride is None or stride == [] else _numbers(stride, axes)
    each = zip(x.shape[2:], value.shape[2:], kernel, steps, sides, spread, strict=True)
    windows = math.prod(_most_windows(*numbers) for numbers in each)
    return call.unary(x, value, LayerBound(_root(windows), 0.0, exactly))


def _adaptive_maximum(call: Call, x: Traced, axes: int, output_size: Any, return_indices: bool) -> Traced:
    if return_indices or x.dim() != axes + 2:
        raise call.refused("it needs a batch of images with channels, and must not return indices")
    function = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)[axes - 1]
    value = function(x.value, output_size)
    windows = 1
    for length, outputs in zip(x.shape[2:], value.shape[2:], strict=True):
        counts = torch.zeros(length)
        for index in range(outputs):
            counts[index * length // outputs : -(-(index + 1) * length // outputs)] += 1
        windows *= int(counts.amax())
    return call.unary(x, value, LayerBound(_root(windows), 0.0, exactly))


def _lp_pool(call: Call, x: Traced, axes: int, norm_type: float, window: Any, stride: Any, ceil_mode: bool) -> Traced:
    """Norms of windows: each moves by no more than its window."""
    if float(norm_type) != 2 or ceil_mode or x.dim() != axes + 2:
        raise call.refused("only the norm of order 2 of whole windows has a bound; use norm_type=2, ceil_mode=False")
    function = (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)[axes - 1]
    value = function(x.value, 2.0, window, stride)
    kernel = _numbers(window, axes)
    steps = kernel if stride is None else _numbers(stride, axes)
    each = zip(x.shape[2:], value.shape[2:], kernel, steps, (0,) * axes, (1,) * axes, strict=True)
    windows = math.prod(_most_windows(*numbers) for numbers in each)
    return call.unary(x, value, norm_of_entries_bound(_root(windows), math.prod(kernel), entries(value)))


def norm_of_entries_bound(lipschitz: float, terms: int, outputs: int) -> LayerBound:
    """Roots of sums of squares. Squares that underflow are lost, which a root turns into sqrt(n tiny)."""
    smooth = relative_bound(lipschitz, terms + 64.0, outputs)
    inner = smooth.rounding
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error = inner(arithmetic)
        return RoundingError(error.slope, error.constant + math.sqrt(8 * terms * arithmetic.tiny * outputs) * SAFETY)

    return LayerBound(lipschitz, 0.0, rounding)


def _register_windows(axes: int) -> None:
    @operation(f"avg_pool{axes}d")
    def avg_pool(
        call: Call,
        input: Traced,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Traced:
        return _avg_pool(
            call, input, axes, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )

    @operation(f"adaptive_avg_pool{axes}d")
    def adaptive_avg_pool(call: Call, input: Traced, output_size: Any) -> Traced:
        return _adaptive_average(call, input, axes, output_size)

    @operation(f"max_pool{axes}d")
    def max_pool(
        call: Call,
        input: Traced,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Traced:
        return _max_pool(call, input, axes, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    name = f"adaptive_max_pool{axes}d"

    @operation(name, only=(getattr(F, name), getattr(torch if axes == 1 else NN, name)))
    def adaptive_max_pool(call: Call, input: Traced, output_size: Any, return_indices: bool = False) -> Traced:
        return _adaptive_maximum(call, input, axes, output_size, return_indices)

    @operation(f"lp_pool{axes}d")
    def lp_pool(
        call: Call, input: Traced, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> Traced:
        return _lp_pool(call, input, axes, norm_type, kernel_size, stride, ceil_mode)


for _axes in (1, 2, 3):
    _register_windows(_axes)
