"""Products with constant weights: matrices, convolutions, transposed convolutions, normalisation in evaluation."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.circular import circular_padding, padded_image
from onelip.certification.graph import AffineHead, Range
from onelip.certification.operations.linear_maps import matmul_by_blocks, scaled_and_added
from onelip.certification.operations.numbers import magnitude, with_numbers
from onelip.certification.operations.registered import Call, entries, operation, operation_on_axes, per_axis
from onelip.certification.proof_costs import announce
from onelip.certification.ranges import EVERYTHING
from onelip.certification.traced import Traced
from onelip.proofs.layer_bound import LayerBound, linear_bound
from onelip.proofs.linear_bounds import bias_norm, matrix_bound
from onelip.proofs.measured_rounding import Product, measured
from onelip.proofs.proof_cost import convolution_proof_cost, norm_proof_cost
from onelip.proofs.proven import SAFETY
from onelip.proofs.proven_convolution import (
    Convolution,
    convolution_magnitude_bound,
    convolution_norm_bound,
    volume_as_images,
    volume_norm_bounds,
)

_WEIGHTS = "its weights depend on the input, and a product of two such values has no Lipschitz constant"
_BIAS = "its bias depends on the input; add it in a step of its own"


def _matrix(call: Call, x: Traced, weight: Any, bias: Any) -> Traced:
    """x W^T + b on the last dimension."""
    x = call.traced(x, _WEIGHTS)
    matrix, shift = call.constant(weight, _WEIGHTS), call.constant(bias, _BIAS)
    if x.dim() < 2 or matrix.dim() != 2 or (shift is not None and shift.dim() > 1):
        raise call.refused("it needs inputs (batch, ..., features), one matrix of weights and one vector of biases")
    rows = math.prod(x.shape[1:-1])
    shift = None if shift is None else shift.expand(len(matrix))  # one number is added at every output

    def prove() -> LayerBound:
        found = product_bound(call, matrix, shift, rows)
        return measured(found, Product(F.linear, matrix, shift)) if matrix.numel() else found

    bound = call.proven("linear", (rows,), {"weight": matrix, "bias": shift}, prove)
    facts = (AffineHead(matrix, matrix.new_zeros(len(matrix)) if shift is None else shift),) if x.dim() == 2 else ()
    limits = functools.partial(_reach, matrix, shift)
    result = call.unary(x, F.linear(x.value, matrix, shift), bound, *facts, limits=limits)
    return _kept(result, lambda t: F.linear(t, matrix, shift))


def _reach(matrix: Tensor, shift: Tensor | None, ranges: Sequence[Range]) -> Range:
    """Where sums are, from where their terms are: largest with the signs of the weights."""
    size = max(abs(end) for end in ranges[0])
    if not math.isfinite(size) or not matrix.numel():
        return EVERYTHING
    ends = matrix.flatten(1).abs().sum(1) * (size * SAFETY) + (0.0 if shift is None else shift.abs())
    return -float(ends.amax()) * SAFETY, float(ends.amax()) * SAFETY


def product_bound(call: Call, matrix: Tensor, bias: Tensor | None, rows: int) -> LayerBound:
    """As `matrix_bound`, for matrices without entries too; a proof that takes long is announced."""
    if not matrix.numel():
        return linear_bound(0.0, 0.0, 0, len(matrix) * rows, bias_norm(bias, rows))
    announce(call.place, norm_proof_cost(matrix.shape))
    return matrix_bound(matrix, bias, rows)


def _kept(result: Traced, run: Any) -> Traced:
    """A node with weights, for diagnostics that apply it to other values."""
    if result.tracer.keep:
        result.node.run, result.node.has_parameters = run, True
    return result


operation("linear")(lambda call, input, weight, bias=None: _matrix(call, input, weight, bias))


@operation("matmul", "mm", "bmm", "mv", "__matmul__")
def matmul(call: Call, input: Any, other: Any = None, mat2: Any = None, vec: Any = None) -> Traced:
    """x W, or W x on matrices behind the batch."""
    second = next((part for part in (mat2, vec) if part is not None), other)
    if isinstance(input, Traced):
        weight = call.constant(second, _WEIGHTS)
        return _matrix(call, input, weight.mT, None) if weight.dim() == 2 else matmul_by_blocks(call, input, weight)
    x, weight = call.traced(second), call.constant(input, _WEIGHTS)
    if weight.dim() != 2 or x.dim() < 3:
        return matmul_by_blocks(call, weight, x)
    columns = math.prod(x.shape[1:-2]) * x.shape[-1]
    bound = call.proven(
        "matrix in front", (columns,), {"matrix": weight}, lambda: product_bound(call, weight, None, columns)
    )
    return call.unary(x, weight @ x.value, bound)


operation("__rmatmul__")(lambda call, input, other: matmul(call, other, input))


@operation("addmm")
def addmm(call: Call, input: Any, mat1: Any, mat2: Any, beta: float = 1, alpha: float = 1) -> Traced:
    """beta * bias + alpha * x W."""
    if beta != 1 or alpha != 1:
        return scaled_and_added(call, input, _matrix(call, mat1, call.constant(mat2, _WEIGHTS).mT, None), beta, alpha)
    return _matrix(call, mat1, call.constant(mat2, _WEIGHTS).mT, input)


@operation_on_axes("conv{}d")
def conv(
    call: Call,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    axes: int,
) -> Traced:
    """A convolution with zero padding, or one that follows circular padding."""
    x, kernel = call.images(input, axes, _WEIGHTS), call.constant(weight, _WEIGHTS)
    shift = call.constant(bias, _BIAS)
    steps, spread = per_axis(stride, axes), per_axis(dilation, axes)
    if isinstance(padding, str):
        totals = [d * (k - 1) if padding == "same" else 0 for d, k in zip(spread, kernel.shape[2:], strict=True)]
        sides = tuple((total // 2, total - total // 2) for total in totals)
    else:
        sides = tuple((side, side) for side in per_axis(padding, axes))
    function = getattr(F, f"conv{axes}d")

    def apply(t: Tensor, taps: Tensor, constant: Tensor | None) -> Tensor:
        return function(t, taps, constant, stride, padding, dilation, groups)

    def run(t: Tensor) -> Tensor:
        return apply(t, kernel, shift)

    value, source, size, mode = run(x.value), x, tuple(x.shape[2:]), "zeros"
    padded = padded_image(x.node) if axes == 2 and not any(map(any, sides)) else None
    if padded is not None:
        source, size = Traced(call.tracer, padded.image, x.value), tuple(padded.image.shape[1:])
        sides, mode = padded.padding, "circular"

    def prove() -> LayerBound:
        norms = conv_norms(call, kernel, size, steps, spread, sides, groups, mode)
        constant = bias_norm(shift, math.prod(value.shape[2:]))
        bound = linear_bound(*norms, terms=kernel[0].numel(), outputs=entries(value), bias_norm=constant)
        return measured(bound, Product(apply, kernel, shift))

    geometry = mode, size, steps, spread, sides, groups
    bound = call.proven("convolution", geometry, {"kernel": kernel, "bias": shift}, prove)
    result = call.unary(source, value, bound, limits=functools.partial(_reach, kernel, shift))
    return _kept(result, lambda t: run(t if padded is None else circular_padding(t, padded.padding)))


def conv_norms(
    call: Call,
    kernel: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]],
    groups: int,
    mode: str = "zeros",
) -> tuple[float, float]:
    """Proven norms of a convolution along one, two or three axes, and of its magnitudes."""
    if len(size) == 3:
        images, torus = volume_as_images(kernel, size, stride, dilation, padding, groups)
        announce(call.place, convolution_proof_cost(images, torus))
        return volume_norm_bounds(images, torus)
    if len(size) == 1:
        kernel, size = kernel[:, :, None], (1, *size)
        stride, dilation, padding = (1, *stride), (1, *dilation), ((0, 0), *padding)
    convolution = Convolution(
        kernel, (stride[0], stride[1]), (dilation[0], dilation[1]), (padding[0], padding[1]), mode, groups
    )
    image = size[0], size[1]
    announce(call.place, convolution_proof_cost(convolution, image))
    return convolution_norm_bound(convolution, image), convolution_magnitude_bound(convolution, image)


@operation_on_axes("conv_transpose{}d")
def conv_transpose(
    call: Call,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    axes: int,
) -> Traced:
    """The adjoint of the convolution with these weights, from images of the output's size to the input's."""
    x, kernel = call.images(input, axes, _WEIGHTS), call.constant(weight, _WEIGHTS)
    shift = call.constant(bias, _BIAS)
    function = getattr(F, f"conv_transpose{axes}d")

    def run(t: Tensor) -> Tensor:
        return function(t, kernel, shift, stride, padding, output_padding, groups, dilation)

    value = run(x.value)
    size = tuple(value.shape[2:])
    steps, spread = per_axis(stride, axes), per_axis(dilation, axes)
    sides = tuple((side, side) for side in per_axis(padding, axes))

    def prove() -> LayerBound:
        norms = conv_norms(call, kernel, size, steps, spread, sides, groups)
        terms = kernel.shape[0] // groups * kernel[0, 0].numel()
        return linear_bound(*norms, terms=terms, outputs=entries(value), bias_norm=bias_norm(shift, math.prod(size)))

    geometry = size, tuple(x.shape[2:]), steps, spread, sides, groups
    bound = call.proven("transposed convolution", geometry, {"kernel": kernel, "bias": shift}, prove)
    return _kept(call.unary(x, value, bound), run)


@operation("batch_norm", only=(F.batch_norm,))
def batch_norm(
    call: Call,
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Traced:
    """(x - mean) / sqrt(var + eps) * weight + bias with fixed numbers: affine, one factor for each channel."""
    x = call.traced(input)
    if training or running_mean is None or running_var is None:
        raise call.refused(
            "it normalises by statistics of the batch, which has no Lipschitz constant; "
            "track running statistics and use evaluation mode"
        )
    numbers = [call.constant(t, _WEIGHTS) for t in (running_mean, running_var, weight, bias)]
    mean, variance, factor, shift = numbers
    if not bool((variance >= 0).all()):
        raise call.refused("its variances are not all positive numbers")
    scale = (variance + eps).rsqrt() if factor is None else factor / (variance + eps).sqrt()
    places, spread = math.prod(x.shape[2:]), variance + eps
    fixed = (scale * mean).abs() * 2 + (0.0 if shift is None else shift.abs())

    def prove() -> LayerBound:
        largest = magnitude(scale) * SAFETY if bool(torch.isfinite(scale).all()) else math.inf
        bound = linear_bound(largest, largest, terms=12, outputs=entries(x), bias_norm=bias_norm(fixed, places))
        # Of (x - mean) / deviation, where the weight is multiplied last.
        steepest, shifted = magnitude(spread.rsqrt()), magnitude(mean)
        return with_numbers(replace(bound, peak=lambda size: (size + shifted) * steepest), spread, largest)

    operands = {"mean": mean, "variance": variance, "weight": factor, "bias": shift}
    bound = call.proven("batch_norm", (places, eps), operands, prove)
    return _kept(
        call.unary(x, F.batch_norm(x.value, mean, variance, factor, shift, False, 0.0, eps), bound),
        lambda t: F.batch_norm(t, mean, variance, factor, shift, False, 0.0, eps),
    )


def _in_torchs_order(
    call: Call,
    input: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Traced:
    """The same in the order of torch.batch_norm."""
    return batch_norm(call, input, mean, var, weight, bias, training, momentum, eps)


operation("batch_norm", only=(torch.batch_norm,))(_in_torchs_order)
operation("exported_batch_norm")(_in_torchs_order)
# An exported program returns two more values.
operation("exported__native_batch_norm_legit_no_training")(
    lambda call, input, weight, bias, mean, var, momentum, eps: (
        _in_torchs_order(call, input, weight, bias, mean, var, False, momentum, eps),
        None,
        None,
    )
)
