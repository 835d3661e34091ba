"""Peak memory of training and of inference: measured on this device, or predicted without one.

On CUDA the figure is the allocator's `max_memory_allocated`. On a CPU it is the exact account of `LiveTensors`.
The prediction is the same account on meta tensors, so it needs neither the memory nor the time of the network.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from onelip.bench.measurement.live_tensors import LiveTensors
from onelip.bench.measurement.meta import without_memory
from onelip.bench.measurement.workload import Workload, build_network, random_batch, training_step
from onelip.bench.runs.machine import machine_facts

GIB = 2**30

CARDS_GIB = (8, 12, 24, 40, 80)
"""Memory of common accelerators."""

CARD_OVERHEAD = 1 * GIB
"""Left free on a card for the CUDA context, scratch space and fragmentation: an allowance, not a measurement."""

_SCRATCH_FACTOR = 1.2

TRAINING_STEPS = 2
"""The momentum buffers appear at the end of the first step, so the peak is reached in the second."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes: of all parameters, at the peak of training, at the peak of inference with cached transformations."""

    parameters: int
    training: int
    inference: int


def predict_memory(workload: Workload) -> MemoryUse:
    """The account on meta tensors."""
    with without_memory():
        return account(build_network(workload), *random_batch(workload))


def measure_memory(workload: Workload, device: torch.device | None = None) -> MemoryUse:
    """Run the network on a device and report what it really used."""
    if device is not None and device.type == "cuda":
        return _cuda_memory(workload, device)
    return account(build_network(workload), *random_batch(workload))


def account(model: nn.Module, x: Tensor, labels: Tensor) -> MemoryUse:
    """Train two steps and evaluate once, with an account of all tensors; the model ends in evaluation mode."""
    gc.collect()  # reference cycles of earlier networks would otherwise be freed in the middle of this account
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
        inference = live.peak
    return MemoryUse(parameter_bytes(model), training, inference)


def _train(model: nn.Module, x: Tensor, labels: Tensor) -> None:
    step = training_step(model, x, labels)
    for _ in range(TRAINING_STEPS):
        step()
    model.zero_grad()  # gradients and, with `step`, momentum go before inference


def _cuda_memory(workload: Workload, device: torch.device) -> MemoryUse:
    gc.collect()
    before = torch.cuda.memory_allocated(device)
    model = build_network(workload, device)
    x, labels = random_batch(workload, device)
    torch.cuda.reset_peak_memory_stats(device)
    _train(model, x, labels)
    training = torch.cuda.max_memory_allocated(device) - before
    model.eval()
    with torch.no_grad():
        model(x)
        torch.cuda.reset_peak_memory_stats(device)
        model(x)
    return MemoryUse(parameter_bytes(model), training, torch.cuda.max_memory_allocated(device) - before)


def parameter_bytes(model: nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


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
    limit = machine_facts()["memory_bytes"]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux
        return limit
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    return min(kilobytes * 1024, limit)
