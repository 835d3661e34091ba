"""Sums, means, largest entries and norms along dimensions, and sorting.

A sum of n entries has norm sqrt(n), their mean 1 / sqrt(n). The largest of n entries moves by no more than they do,
and sorted entries are as near to each other as unsorted ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.certification.graph import exactly
from onelip.certification.operations.arithmetic import maximum, minimum
from onelip.certification.operations.registered import Call, Handler, entries, operation
from onelip.certification.operations.windows import norm_of_entries_bound
from onelip.certification.traced import Jumping, Traced
from onelip.linalg.layer_bound import LayerBound, linear_bound
from onelip.linalg.proven import SAFETY


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
    value = (torch.mean if mean else torch.sum)(input.value, chosen, keepdim=keep)
    norm = (1 / math.sqrt(count) if mean else math.sqrt(count)) * (1.0 if count == 1 else SAFETY)
    return call.unary(input, value, linear_bound(norm, norm, terms=count + 2, outputs=entries(value)))


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


def _chosen(call: Call, x: Traced, value: Tensor) -> Traced:
    """Some of the entries."""
    return call.unary(x, value, LayerBound(1.0, 0.0, exactly))


def _register_extrema(name: str, along: Callable[..., Tensor], of_two: Handler) -> None:
    @operation("a" + name)
    def extremum(call: Call, input: Traced, dim: Any = (), keepdim: bool = False) -> Traced:
        return _chosen(call, input, along(input.value, call.dims(input, dim), keepdim))

    @operation(name)
    def extremum_or_one_of_two(
        call: Call, input: Any, dim: Any = None, keepdim: bool = False, other: Any = None
    ) -> Any:
        if isinstance(dim, Traced | Tensor) or other is not None:
            return of_two(call, input, dim if other is None else other)
        return _values_only(extremum(call, call.traced(input), dim, keepdim))


_register_extrema("max", torch.amax, maximum)
_register_extrema("min", torch.amin, minimum)


@operation("sort")
def sort(call: Call, input: Traced, dim: int = -1, descending: bool = False, stable: bool = False) -> ValuesOnly:
    """Sorted entries."""
    value = input.value.sort(dim=call.dim(input, dim), descending=descending).values
    return _values_only(_chosen(call, input, value))


@operation("topk")
def topk(call: Call, input: Traced, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesOnly:
    """The first of the sorted entries."""
    if not sorted:
        raise call.refused("in no order its entries change places; use sorted=True")
    return _values_only(_chosen(call, input, input.value.topk(k, call.dim(input, dim), largest).values))


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
    if order not in (2, 2.0, "fro", None):
        raise call.refused("only norms of order 2 have a bound")
    value = torch.linalg.vector_norm(input.value, dim=chosen, keepdim=keep)
    count = math.prod(input.shape[place] for place in chosen)
    return call.unary(input, value, norm_of_entries_bound(1.0, count, entries(value)))


@operation("norm", only=(torch.linalg.norm,))
def linalg_norm(
    call: Call, input: Traced, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Traced:
    """The same, but along two dimensions order 2 is the largest singular value."""
    if ord == 2 and not isinstance(dim, int | None) and len(dim) > 1:
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
    """Copies of pixels; smooth interpolation is refused."""
    if mode not in ("nearest", "nearest-exact"):
        raise call.refused(f"mode={mode!r} has no bound here; use mode='nearest'")
    options = {
        "size": size,
        "scale_factor": scale_factor,
        "mode": mode,
        "recompute_scale_factor": recompute_scale_factor,
    }
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
