"""Peak memory of training and of inference.

On CUDA the figure is the allocator's `max_memory_allocated`. On a CPU it is the exact account of `LiveTensors`, and the
prediction is the same account on meta tensors, so that it needs neither the memory nor the time of the network.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from onelip.bench.measurement.live_tensors import LiveTensors
from onelip.bench.measurement.networks import training_step

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
