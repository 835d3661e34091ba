"""Whether tensors are as they were: what the eval cache of a layer and other caches ask.

Version counters count in-place writes, but not those through `.data`, numpy or DLPack; addresses of storages tell of
swapped data, but a freed one is used again. So a snapshot holds the storages, which keeps their addresses, and on CPUs
a copy of the contents, which is compared bit by bit. On other devices a comparison would make the host wait for the
device in every pass: there, writes that leave no trace are not noticed (`layer.train()` and `layer.eval()` forget all).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from onelip.linalg.tensor_modes import ordinary_tensors

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Snapshot:
    """The state of some tensors at one moment."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tuple(tensors)
        """Held, because torch.export shows other tensors in the place of parameters."""
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._traces = _traces(tensors)
        self._contents = [_bits(tensor).clone() if tensor.device.type == "cpu" else None for tensor in tensors]

    def is_current(self, tensors: Sequence[Tensor] | None = None) -> bool:
        """Whether these tensors, by default those of the snapshot, are the same ones with the same contents."""
        tensors = self.tensors if tensors is None else tensors
        if _traces(tensors) != self._traces:
            return False
        with ordinary_tensors(), _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext():
            return all(
                kept is None or torch.equal(_bits(tensor), kept)
                for tensor, kept in zip(tensors, self._contents, strict=True)
            )


def _traces(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    """Changes whenever one of the tensors is written to, replaced, or given other data."""
    return [
        (id(t), t._version, t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride(), t.dtype)
        for t in tensors
    ]


def _bits(tensor: Tensor) -> Tensor:
    """The bits as integers: equal for NaNs, different for 0 and -0."""
    return tensor.detach().view(_INTEGERS[tensor.element_size()])
