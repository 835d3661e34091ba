"""Transformations of small matrices on CPUs by one thread, also backwards (`onelip.linalg.small_products`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor

from onelip.layers.contract import Request
from onelip.layers.operator_sources import Build
from onelip.layers.operators import Operator
from onelip.linalg.small_products import backward_from_here, one_thread, wants_one_thread


def by_one_thread(build: Build, request: Request, tensors: Sequence[Mapping[str, Tensor]]) -> Build:
    """As one thread makes the operators, where their tensors are few numbers."""
    few = wants_one_thread([tensor for named in tensors for tensor in named.values()])
    return partial(_by_one_thread, build) if few else build


def _by_one_thread(build: Build, places: slice, tensors: Sequence[Mapping[str, Tensor]]) -> list[Operator]:
    flat = [tensor for named in tensors for tensor in named.values()]
    marked = iter(backward_from_here(flat, begins=False))
    with one_thread():
        operators = build(places, [{name: next(marked) for name in named} for named in tensors])
    results = [tensor for operator in operators for tensor in operator.tensors().values()]
    begun = iter(backward_from_here(results, begins=True))
    return [operator.map(lambda _: next(begun)) for operator in operators]
