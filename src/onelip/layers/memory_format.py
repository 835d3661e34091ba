"""The memory format of outputs: that of the input, as torch's own layers have it.

Inside a layer the channels of a pixel lie side by side, or its pixels lie outermost, whichever is fastest. The caller
gets contiguous images for contiguous ones and channels_last for channels_last, so that `x.view(x.size(0), -1)` works
behind a layer as behind `nn.Conv2d`. onelip's own networks take images in any format from one layer to the next: there
nothing is copied in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_FREE: ContextVar[bool] = ContextVar("any_memory_format", default=False)

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@contextmanager
def any_memory_format() -> Iterator[None]:
    """Inside the block, layers hand on images in the format that they have at hand."""
    token = _FREE.set(True)
    try:
        yield
    finally:
        _FREE.reset(token)


def keeps_format() -> bool:
    """Whether outputs are to have the memory format of inputs."""
    return not _FREE.get()


def in_format_of(x: Tensor, y: Tensor) -> Tensor:
    """The output y of a layer in the memory format of its input x."""
    if torch.compiler.is_compiling():  # compilers do not follow context variables
        return y.contiguous(memory_format=memory_format_of(x))
    if _FREE.get() or not issubclass(type(x), Tensor):  # certificates trace with values that are no tensors
        return y
    if torch._C._are_functorch_transforms_active():  # torch.func.vmap knows contiguous tensors only
        return y.contiguous()
    return y.contiguous(memory_format=memory_format_of(x))


def memory_format_of(x: Tensor) -> torch.memory_format:
    """channels_last for images and volumes whose strides say so, else contiguous; the rule that torch has."""
    if x.dim() not in _CHANNELS_LAST:
        return torch.contiguous_format
    shape, strides = x.shape, x.stride()
    smallest = 1
    for dim in (1, *range(x.dim() - 1, 1, -1)):
        if strides[dim] < smallest:
            return torch.contiguous_format
        smallest = strides[dim] * max(1, shape[dim])
    is_one_number = smallest == strides[1]
    return torch.contiguous_format if is_one_number or strides[0] < smallest else _CHANNELS_LAST[x.dim()]
