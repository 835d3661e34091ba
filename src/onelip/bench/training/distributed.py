"""Processes started by `torchrun`: each trains on its share of every batch, and all take the same decisions.

Only rank 0 writes. The others follow its clock, so that all of them stop after the same step.

bfloat16 is tried in another process before it is used: some virtual machines announce matrix instructions (AMX) that
they do not pass on, and a product then ends the whole process with "illegal instruction", which cannot be caught.
"""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from onelip.bench.records.machine import usable_device
from onelip.errors import InvalidInputError


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together; a single process is rank 0 of 1. Rank 0 writes and prints."""

    rank: int
    world_size: int
    device: torch.device

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model with averaged gradients; it starts with the weights of rank 0."""
        if self.world_size == 1:
            return model
        devices = [self.device.index] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices)

    def mean(self, value: Tensor) -> Tensor:
        """Mean of a tensor over all processes."""
        if self.world_size > 1:
            value = value.clone()
            dist.all_reduce(value)
            value /= self.world_size
        return value

    def from_first(self, value: float) -> float:
        """The number that rank 0 has."""
        if self.world_size == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared)


@contextmanager
def joined_ranks(device: str | None) -> Iterator[Ranks]:
    """The processes of `torchrun` if it started this one, else this process alone.

    Args:
        device: such as "cpu" or "cuda"; by default a GPU where there is one.
    """
    kind = usable_device(device)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        yield Ranks(0, 1, torch.device(kind))
        return
    where = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if kind.startswith("cuda") else torch.device(kind)
    if where.type == "cuda":
        torch.cuda.set_device(where)
    dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), world_size, where)
    finally:
        gc.collect()  # a model in a cycle of references would keep threads of the group until Python ends, and abort it
        dist.destroy_process_group()


def is_first_process() -> bool:
    """Whether this is the process that writes and prints, also outside of `joined_ranks`."""
    return int(os.environ.get("RANK", "0")) == 0


_TRIAL = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x, x[0])"


def check_bfloat16(device: torch.device) -> None:
    """Raise `InvalidInputError` if bfloat16 on this device would kill the process."""
    if device.type == "cpu" and not _works_on_cpu():
        raise InvalidInputError(
            "bfloat16 does not run on this processor: it announces instructions that it cannot execute; use "
            "--precision float32, or set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"
        )


@functools.cache
def _works_on_cpu() -> bool:
    return subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False).returncode >= 0
