"""Processes started by `torchrun`: each trains on its share of every batch, and all take the same decisions.

Only rank 0 writes. The others follow its clock, so that all of them stop after the same step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from onelip.bench.runs.devices import usable_device


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
        dist.destroy_process_group()


def is_first_process() -> bool:
    """Whether this is the process that writes and prints, also outside of `joined_ranks`."""
    return int(os.environ.get("RANK", "0")) == 0
