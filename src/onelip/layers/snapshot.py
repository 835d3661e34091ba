"""Whether tensors are as they were: what the eval cache of a layer and other caches ask.

Version counters count in-place writes, but not those through `.data`, numpy or DLPack; addresses of storages tell of
swapped data, but a freed one is used again. So a snapshot holds the storages, which keeps their addresses, and a copy
of the contents, which is compared bit by bit. On CPUs that is done at once. On other devices the host would have to
wait for the answer in every pass: there the comparison is queued behind the work of the device, and its answer is read
by a later call that finds it ready. A write that leaves no trace is then noticed after a pass or two, not at once
(`layer.train()` and `layer.eval()` forget all). XLA has no events to ask for: there it is not noticed before that.
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


class Snapshot:
    """The state of some tensors at one moment."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tuple(tensors)
        """Held, because torch.export shows other tensors in the place of parameters."""
        self._storages = [tensor.untyped_storage() for tensor in tensors]
        self._traces = _traces(tensors)
        real = [tensor for tensor in tensors if not tensor.is_meta]
        self._answer: QueuedAnswer | None = None
        self._copies: list[tuple[Tensor, Tensor]] = []
        self._bytes: list[bytearray] = []
        self._memories: list[np.ndarray] = []
        if all(answers_at_once(tensor.device) for tensor in real):
            self._memories = list(map(_memory, real))
            self._bytes = list(map(bytearray, self._memories))
        else:
            self._copies = [(bits, bits.clone()) for bits in map(_bits, real)]

    def is_current(self, tensors: Sequence[Tensor] | None = None) -> bool:
        """Whether these tensors, by default those of the snapshot, are the same ones with the same contents."""
        if tensors is not None and list(map(id, tensors)) != list(map(id, self.tensors)):
            return False
        # With the same traces, the tensors are where they were: what was looked at then is looked at again.
        if _traces(self.tensors) != self._traces:
            return False
        if not self._copies:
            return self._bytes == self._memories  # pair by pair
        with ordinary_tensors(), _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext():
            return self._was_current(self._copies)

    def _was_current(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> bool:
        """The finding of the comparison in flight, if it is ready; then the next one is queued."""
        if self._answer is not None and not self._answer.is_ready():
            return True
        found = self._answer is None or self._answer.value()
        device = pairs[0][0].device
        if not hasattr(torch, device.type):  # XLA has no events: the traces have to do
            return True
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
    """Changes whenever one of the tensors is written to or given other data."""
    return [(t._version, t.untyped_storage()._cdata, t.data_ptr(), t.shape, t.stride(), t.dtype) for t in tensors]


def _bits(tensor: Tensor) -> Tensor:
    """The bits as integers: equal for NaNs, different for 0 and -0."""
    return tensor.detach().view(_INTEGERS[tensor.element_size()])


def _memory(tensor: Tensor) -> np.ndarray:
    """The bytes from the first to the last number, which `bytearray` compares in one go, many times as fast as torch.

    What lies between the numbers of a tensor with gaps counts too.
    """
    count = 1 + sum((side - 1) * step for side, step in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.detach().as_strided((count if tensor.numel() else 0,), (1,))
    return np.from_dlpack(flat.view(torch.uint8))  # Tensor.numpy() forbids FSDP to free the storage
