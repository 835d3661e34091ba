"""Whether tensors are as they were: what the eval cache of a layer and other caches ask.

Version counters count in-place writes, but not those through `.data`, numpy or DLPack; addresses of storages tell of
swapped data, but a freed one is used again. So a snapshot holds the storages, which keeps their addresses, and a copy
of the contents, which is compared bit by bit. On CPUs that is done at once. On other devices the host would have to
wait for the answer in every pass: there the comparison is queued behind the work of the device, and its answer is read
by a later call that finds it ready. A write that leaves no trace is then noticed after a pass or two, not at once
(`layer.train()` and `layer.eval()` forget all).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from onelip.linalg.tensor_modes import ordinary_tensors

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WORDS_AT_ONCE = 2**15
"""Of eight bytes: the result of a comparison stays in the cache."""


class Snapshot:
    """The state of some tensors at one moment."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tuple(tensors)
        """Held, because torch.export shows other tensors in the place of parameters."""
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._traces = _traces(tensors)
        self._contents = [None if tensor.is_meta else _bits(tensor).clone() for tensor in tensors]
        self._answer: QueuedAnswer | None = None

    def is_current(self, tensors: Sequence[Tensor] | None = None) -> bool:
        """Whether these tensors, by default those of the snapshot, are the same ones with the same contents."""
        tensors = self.tensors if tensors is None else tensors
        if _traces(tensors) != self._traces:
            return False
        with ordinary_tensors(), _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext():
            pairs = [(_bits(t), kept) for t, kept in zip(tensors, self._contents, strict=True) if kept is not None]
            if all(answers_at_once(bits.device) for bits, _ in pairs):
                return all(_equal(bits, kept) for bits, kept in pairs)
            return self._was_current(pairs)

    def _was_current(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> bool:
        """What the comparison in flight has found, if it is ready; then the next one is queued."""
        if self._answer is not None and not self._answer.is_ready():
            return True
        found = self._answer is None or self._answer.value()
        device = pairs[0][0].device
        if found and not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            self._answer = QueuedAnswer(torch.stack([(bits == kept).all() for bits, kept in pairs]).all())
        return found


class QueuedAnswer:
    """A yes or no that a device will have found out when it comes to it; asking does not make the host wait."""

    def __init__(self, answer: Tensor) -> None:
        pinned = torch.empty((), dtype=torch.bool, pin_memory=answer.device.type == "cuda")
        self._answer = pinned.copy_(answer, non_blocking=True)
        self._event = torch.get_device_module(answer.device).Event()
        self._event.record()

    def is_ready(self) -> bool:
        """Whether the device has come to it."""
        return bool(self._event.query())

    def value(self) -> bool:
        """The answer, once it is ready."""
        return bool(self._answer)


def answers_at_once(device: torch.device) -> bool:
    """Whether the host need not wait for results of this device."""
    return device.type == "cpu"


def _traces(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    """Changes whenever one of the tensors is written to, replaced, or given other data."""
    return [
        (id(t), t._version, t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride(), t.dtype)
        for t in tensors
    ]


def _bits(tensor: Tensor) -> Tensor:
    """The bits as integers: equal for NaNs, different for 0 and -0."""
    return tensor.detach().view(_INTEGERS[tensor.element_size()])


def _equal(first: Tensor, second: Tensor) -> bool:
    """`torch.equal` of integers on the CPU, which looks at them one by one; numpy compares many words at a time."""
    one, other = map(np.from_dlpack, (first.flatten(), second.flatten()))  # .numpy() forbids FSDP to free the storage
    if one.nbytes % 8 == 0:
        one, other = one.view(np.int64), other.view(np.int64)
    return all(
        np.array_equal(one[start : start + _WORDS_AT_ONCE], other[start : start + _WORDS_AT_ONCE])
        for start in range(0, len(one), _WORDS_AT_ONCE)
    )
