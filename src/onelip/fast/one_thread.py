"""Products of small matrices by one thread, so that none of them waits for another.

MKL, the library in which torch multiplies and factorises on Intel and AMD processors, takes all threads from products
of 32 x 32 matrices on, twice for each. On an idle machine that gains nothing for small layers; where another program
occupies a core, each of these products waits until that core is free. What is set here is MKL's own number of threads,
and of the calling thread alone; `torch.set_num_threads` would change all operations of the process.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onelip.layers.contract import Request
from onelip.layers.operator_sources import Build
from onelip.layers.operators import Operator
from onelip.linalg.tensor_modes import wants_plain_operations

SMALL = 2**15
"""Numbers in the parameters of a transformation up to which one thread does its products: a matrix of 180 x 180."""


@functools.cache
def _set_threads() -> Callable[[int], int] | None:
    """MKL's function for the calling thread, None in builds of torch without MKL."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        return ctypes.CDLL(str(library)).MKL_Set_Num_Threads_Local
    except (OSError, AttributeError):
        return None


def wants_one_thread(tensors: Sequence[Tensor]) -> bool:
    """Whether products with these tensors are small, and there are threads to leave out of them."""
    if wants_plain_operations() or torch.get_num_threads() == 1 or sum(tensor.numel() for tensor in tensors) > SMALL:
        return False
    return all(tensor.device.type == "cpu" for tensor in tensors) and _set_threads() is not None


@contextmanager
def one_thread() -> Iterator[None]:
    """Products inside the block are done by the calling thread alone."""
    _limit(True)
    try:
        yield
    finally:
        _limit(False)


def _limit(on: bool) -> None:
    threads, set_threads = torch.get_num_threads(), _set_threads()  # the first makes torch look how many there are
    if set_threads is not None:
        set_threads(1 if on else threads)


def backward_from_here(tensors: Sequence[Tensor], *, begins: bool) -> list[Tensor]:
    """Views of these tensors; once their gradients are there, one thread begins, or ends, to do the products.

    Around a transformation: `begins` for its results, `ends` for its parameters.
    """
    learning = [tensor for tensor in tensors if tensor.requires_grad]
    if not learning or not torch.is_grad_enabled():
        return list(tensors)
    passed: Any = iter(_Mark.apply(begins, *learning))  # pyright: ignore[reportArgumentType]
    return [next(passed) if tensor.requires_grad else tensor for tensor in tensors]


class _Mark(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, begins: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.begins = begins
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        _limit(ctx.begins)
        return None, *gradients


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
