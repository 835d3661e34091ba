"""Sums, means, largest entries and norms along dimensions, and sorting.

A sum of n entries has norm sqrt(n), their mean 1 / sqrt(n). The largest of n entries moves by no more than they do,
and sorted entries are as near to each other as unsorted ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import Identity
from onelip.certification.operations.arithmetic import maximum, minimum
from onelip.certification.operations.linear_maps import smooth_interpolation
from onelip.certification.operations.registered import Call, Handler, entries, operation, register_function, root
from onelip.certification.operations.scalar_functions import identity, norm_fact, sum_of_powers
from onelip.certification.operations.windows import norm_of_entries_bound
from onelip.certification.ranges import affine, unchanged
from onelip.certification.traced import Jumping, Traced
from onelip.proofs.layer_bound import linear_bound, relative_bound
from onelip.proofs.proven import SAFETY


class ValuesOnly(NamedTuple):
    """The values of a sort, a maximum, ...; where they came from jumps and has no bound."""

    values: Traced
    indices: Jumping


def _values_only(values: Traced) -> ValuesOnly:
    return ValuesOnly(values, Jumping(values, "which entries are the largest jumps; use the values alone"))


def total(
    call: Call,
    input: Traced,
    *dims: Any,
    dim: Any = None,
    keepdim: bool = False,
    axis: Any = None,
    dtype: Any = None,
    mean: bool,
) -> Traced:
    """Sum or mean along dimensions."""
    call.same_type(dtype)
    given, keep = _arguments(dims, dim if axis is None else axis, keepdim)
    chosen = call.dims(input, given)
    count = math.prod(input.shape[place] for place in chosen)
    if mean and count == 0:
        raise call.refused("a mean of no entries is no number")
    value = (torch.mean if mean else torch.sum)(input.value, chosen, keepdim=keep)
    powers = sum_of_powers(call, input, value, chosen, count if mean else 1)
    if powers is not None:
        return powers
    norm = (1 / math.sqrt(count) if mean else math.sqrt(count)) * (1.0 if count == 1 else SAFETY)
    bound = linear_bound(norm, norm, terms=count + 2, outputs=entries(value))
    result = call.unary(input, value, bound, limits=unchanged if mean else affine(float(count), 0.0))
    if mean and keep:
        result.node.facts = (*result.node.facts, Identity(("mean", identity(input.node), tuple(sorted(chosen)))))
    return result


operation("sum")(functools.partial(total, mean=False))
operation("mean")(functools.partial(total, mean=True))


def _arguments(positional: tuple[Any, ...], dim: Any, keepdim: bool) -> tuple[Any, bool]:
    """x.sum(1), x.sum((1, 2)), x.sum(1, 2), x.sum(1, True)."""
    if not positional:
        return dim, keepdim
    if isinstance(positional[-1], bool):
        return _arguments(positional[:-1], dim, positional[-1])
    first = positional[0]
    return (first if len(positional) == 1 else positional), keepdim


def _register_extrema(name: str, along: Callable[..., Tensor], of_two: Handler) -> None:
    @operation("a" + name)
    def extremum(call: Call, input: Traced, dim: Any = (), keepdim: bool = False) -> Traced:
        return call.chosen(input, along(input.value, call.dims(input, dim), keepdim))

    @operation(name)
    def extremum_or_one_of_two(
        call: Call, input: Any, dim: Any = None, keepdim: bool = False, other: Any = None
    ) -> Any:
        if isinstance(dim, Traced | Tensor) or other is not None:
            return of_two(call, input, dim if other is None else other)
        return _values_only(extremum(call, call.traced(input), dim, keepdim))


_register_extrema("max", torch.amax, maximum)
_register_extrema("min", torch.amin, minimum)


def _first(call: Call, x: Traced, run: Callable[[Tensor], Any]) -> ValuesOnly:
    """Some of the entries, and where they came from."""
    return _values_only(call.chosen(x, run(x.value)[0]))


# torch's median is the lower one of the two in the middle.
register_function(_first, lambda input, dim=None, keepdim=False: input.median(dim, keepdim), "median")
register_function(_first, lambda input, k, dim=-1, keepdim=False: input.kthvalue(k, dim, keepdim), "kthvalue")
register_function(
    _first, lambda input, dim=-1, descending=False, stable=False: input.sort(dim=dim, descending=descending), "sort"
)


@operation("quantile")
def quantile(
    call: Call, input: Traced, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Traced:
    """Means of two neighbours among the sorted entries."""
    (axis,), share = call.dims(input, dim), call.constant(q, "the share depends on the input")
    if isinstance(share, Tensor) and share.dim():
        raise call.refused("it takes one share at a time; several come before the batch")
    if interpolation != "linear":
        raise call.refused("which neighbour it takes may differ between types; use interpolation='linear'")
    value = torch.quantile(input.value, float(share), dim=axis, keepdim=keepdim)
    # where between two neighbours the share is, the program computes in its own type
    bound = relative_bound(1.0, 4.0 * input.shape[axis] + 8, entries(value))
    return call.unary(input, value, bound, limits=unchanged)


def _running(call: Call, x: Traced, run: Any) -> ValuesOnly:
    """The largest or smallest entry so far: each entry can be there as often as there are places."""
    return _values_only(call.chosen(x, run(x.value)[0], root(x.shape[run.keywords["dim"]])))


register_function(_running, lambda input, dim: input.cummax(dim), "cummax")
register_function(_running, lambda input, dim: input.cummin(dim), "cummin")


def _register_deviation(name: str, found: Callable[..., Traced]) -> None:
    """std and var, by what makes them of dimensions, how many entries these have, the correction, and keepdim."""

    @operation(name)
    def deviation(
        call: Call,
        input: Traced,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Traced:
        correction = int(1 if unbiased is None else unbiased) if correction is None else correction
        chosen = call.dims(input, dim)
        count = math.prod(input.shape[place] for place in chosen)
        if not count > correction:
            raise call.refused("a deviation of so few entries is no number")
        return found(call, input, chosen, count, correction, keepdim)


def _std(call: Call, x: Traced, dims: list[int], count: int, correction: Any, keepdim: bool) -> Traced:
    """The norm of what is left without the mean, divided by sqrt(n - correction)."""
    value = torch.std(x.value, dims, correction=correction, keepdim=keepdim)
    bound = norm_of_entries_bound(SAFETY / math.sqrt(count - correction), 4 * count, entries(value))
    return call.unary(x, value, bound, limits=lambda _: (0.0, math.inf))


def _var(call: Call, x: Traced, dims: list[int], count: int, correction: Any, keepdim: bool) -> Traced:
    """The square of a norm: unbounded, unless a root follows."""
    squares = (x - torch.mean(x, tuple(dims), keepdim=True)) ** 2  # pyright: ignore[reportOperatorIssue]
    return torch.sum(squares, tuple(dims), keepdim) / (count - correction)


_register_deviation("std", _std)
_register_deviation("var", _var)


@operation("topk")
def topk(call: Call, input: Traced, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesOnly:
    """The first of the sorted entries."""
    if not sorted:
        raise call.refused("in no order its entries change places; use sorted=True")
    return _values_only(call.chosen(input, input.value.topk(k, call.dim(input, dim), largest).values))


@operation("norm", "vector_norm")
def norm(
    call: Call,
    input: Traced,
    *arguments: Any,
    p: Any = "fro",
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Traced:
    """Norms along dimensions, of order 2."""
    call.same_type(dtype)
    order = arguments[0] if arguments else (ord if p == "fro" else p)
    chosen = call.dims(input, arguments[1] if len(arguments) > 1 else dim)
    keep = arguments[2] if len(arguments) > 2 else keepdim
    order = 2.0 if order in ("fro", None) else order
    if not isinstance(order, int | float) or not order >= 1:
        raise call.refused("only norms of order 1 and more have a bound")
    order = float(order)
    value = torch.linalg.vector_norm(input.value, order, dim=chosen, keepdim=keep)
    count = math.prod(input.shape[place] for place in chosen)
    constant = count ** max(0.0, 1 / order - 0.5) * (1.0 if order >= 2 else SAFETY)
    bound = norm_of_entries_bound(constant, count, entries(value), order)
    if order != 2:
        exponent = 1.0 if math.isinf(order) else order
        bound = replace(bound, peak=lambda size: size**exponent)
    spread = count ** (1 / order)
    result = call.unary(input, value, bound, limits=lambda ends: (0.0, max(map(abs, ends[0])) * spread * SAFETY))
    return norm_fact(input, result, order, chosen, count + 64.0) if order >= 2 else result


@operation("norm", only=(torch.linalg.norm,))
def linalg_norm(
    call: Call, input: Traced, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Traced:
    """The same, but along two dimensions an order is that of a norm of matrices."""
    if ord not in ("fro", None) and len(call.dims(input, dim)) > 1:
        raise call.refused("norms of matrices have no bound here; use torch.linalg.vector_norm")
    return norm(call, input, 2 if ord is None else ord, dim=dim, keepdim=keepdim, dtype=dtype)


@operation("interpolate", "upsample", only=(F.interpolate, F.upsample))
def interpolate(
    call: Call,
    input: Traced,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Traced:
    """Copies of pixels, or weighted means of them."""
    options: dict[str, Any] = {
        "size": size,
        "scale_factor": scale_factor,
        "mode": mode,
        "recompute_scale_factor": recompute_scale_factor,
    }
    if mode not in ("nearest", "nearest-exact"):
        return smooth_interpolation(call, input, {**options, "align_corners": align_corners, "antialias": antialias})
    for axis in range(2, input.dim()):
        # Which pixel is the nearest is computed in the type of the image, so that programs of two types may disagree.
        shape = [length if place == axis else 1 for place, length in enumerate(input.shape)]
        places = torch.arange(input.shape[axis], dtype=torch.float64).reshape(shape).expand(1, 1, *input.shape[2:])
        if not torch.equal(F.interpolate(places.float(), **options).double(), F.interpolate(places, **options)):
            raise call.refused(
                "float32 and float64 programs pick different pixels at this size; use an integer scale_factor"
            )
    return call.moved(
        input, F.interpolate(input.value, **options), lambda t: F.interpolate(t, **options), copies=True, view=False
    )
