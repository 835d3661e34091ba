"""Exact accounting of live tensors: which storages exist, how many bytes they hold, and the peak over time.

A storage counts from the moment an operator returns (or first touches) a tensor that uses it until the moment
its memory is given back, which Python learns through a weak reference to the storage. So parameters, gradients,
momentum, what autograd saves and every temporary that exists as a tensor are counted, views are not counted
twice, and the scratch space inside one operator is not counted at all.

Nothing here looks at values: on meta tensors, which have shapes but no memory, the account comes out the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class LiveTensors(TorchDispatchMode):
    """Context in which every tensor storage is counted; `current` and `peak` are in bytes.

    Tensors that existed before are counted once an operator reads them, or by `add`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.current = 0
        self.peak = 0
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def add(self, values: Iterable[Any]) -> None:
        """Count the tensors among these, in lists and tuples as well.

        Other values, views and tensors that are counted already change nothing.
        """
        for value in values:
            if isinstance(value, Tensor):
                self._add_storage(value.untyped_storage())
            elif isinstance(value, (list, tuple)):
                self.add(value)

    def reset_peak(self) -> None:
        """Start a new peak from what is alive now."""
        self.peak = self.current

    def _add_storage(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._storages:
            return
        size = storage.nbytes()
        # The closure must not hold `self` alive from a storage that outlives the account.
        account = weakref.ref(self)

        def freed(_: weakref.ref[torch.UntypedStorage]) -> None:
            if (mode := account()) is not None and mode._storages.pop(key, None) is not None:
                mode.current -= size

        self._storages[key] = weakref.ref(storage, freed)
        self.current += size
        self.peak = max(self.peak, self.current)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and count what it read and what it returned."""
        result = func(*args, **(kwargs or {}))
        self.add(args)
        if kwargs:
            self.add(kwargs.values())
        self.add((result,))
        return result
