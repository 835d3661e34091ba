"""Peak memory of training and of inference.

On CUDA the figure is the allocator's `max_memory_allocated`. On a CPU it is the exact account of `LiveTensors`, and the
prediction is the same account on meta tensors, so that it needs neither the memory nor the time of the network.

A storage counts from the moment an operator returns (or first touches) a tensor that uses it until the moment
its memory is given back, which Python learns through a weak reference to the storage. So parameters, gradients,
momentum, what autograd saves and every temporary that exists as a tensor are counted, views are not counted
twice, and the scratch space inside one operator is not counted at all.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from onelip.bench.measurement.networks import training_step
from onelip.errors import OnelipError
from onelip.machine_memory import memory_bytes


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


GIB = 2**30

CARDS_GIB = (8, 12, 24, 40, 80)
"""Memory of common accelerators."""

CARD_OVERHEAD = 1 * GIB
"""Left free on a card for the CUDA context, scratch space and fragmentation: an allowance, not a measurement."""

_SCRATCH_FACTOR = 1.2


def smallest_card(needed: int) -> int | None:
    """Smallest card (in GiB) that holds so many bytes beside the overhead, or None."""
    return next((card for card in CARDS_GIB if needed + CARD_OVERHEAD <= card * GIB), None)


def fits(needed: int, available: int) -> bool:
    """Whether a real run may be tried: kernels use scratch space of their own beside the predicted tensors."""
    return needed * _SCRATCH_FACTOR <= available


def available_memory(device: torch.device | None = None) -> int:
    """Bytes that a run could use now: free memory of the card, or available memory of the machine or container."""
    if device is not None and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    limit = memory_bytes()
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux
        return limit
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return min(kilobytes * 1024, limit)


class NotPredictableError(OnelipError):
    """An operator gives no result without values, so nothing about the network can be predicted."""


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Context in which every new tensor has no data: a network of any size takes no memory and no time to compute.

    (`FakeTensorMode` gives the same account, but imitates the devices of tensors too, at ten times the cost.) An
    operator that needs values or has no kernel for meta tensors is reported by torch's own message, which names it.
    """
    try:
        with torch.device("meta"):
            yield
    except NotImplementedError as error:
        raise NotPredictableError(f"cannot run without values: {' '.join(str(error).split())}") from error


TRAINING_STEPS = 2
"""The momentum buffers appear at the end of the first step, so the peak is reached in the second."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes: of all parameters, at the peak of training, at the peak of inference with cached transformations."""

    parameters: int
    training: int
    inference: int


def measure_memory(model: nn.Module, x: Tensor, labels: Tensor) -> MemoryUse:
    """Train two steps and evaluate once on the device of the images; the model ends in evaluation mode."""
    gc.collect()  # reference cycles of earlier networks would otherwise be freed in the middle of this account
    measure = _on_cuda if x.device.type == "cuda" else _by_account
    training, inference = measure(model, x, labels)
    return MemoryUse(sum(parameter.nbytes for parameter in model.parameters()), training, inference)


def _by_account(model: nn.Module, x: Tensor, labels: Tensor) -> tuple[int, int]:
    with LiveTensors() as live:
        live.add([*model.parameters(), *model.buffers(), x, labels])
        _train(model, x, labels)
        training = live.peak
    model.eval()
    with LiveTensors() as live, torch.no_grad():
        live.add([*model.parameters(), *model.buffers(), x])
        model(x)  # fills the caches, whose content counts below
        live.reset_peak()
        model(x)
        return training, live.peak


def _on_cuda(model: nn.Module, x: Tensor, labels: Tensor) -> tuple[int, int]:
    own = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers(), x, labels))
    others = torch.cuda.memory_allocated(x.device) - own
    torch.cuda.reset_peak_memory_stats(x.device)
    _train(model, x, labels)
    training = torch.cuda.max_memory_allocated(x.device) - others
    model.eval()
    with torch.no_grad():
        model(x)
        torch.cuda.reset_peak_memory_stats(x.device)
        model(x)
    return training, torch.cuda.max_memory_allocated(x.device) - others


def _train(model: nn.Module, x: Tensor, labels: Tensor) -> None:
    step = training_step(model, x, labels)
    for _ in range(TRAINING_STEPS):
        step()
    model.zero_grad()  # gradients and, with `step`, momentum go before inference
