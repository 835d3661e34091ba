"""What each process of the DDP test runs: every method on its half of a batch, at once and image by image."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import onelip
from onelip.layers import MethodInfo, list_methods

BATCH = 4


def build(method: MethodInfo) -> nn.Module:
    """A small network with a convolution and a linear layer, the same in every process."""
    torch.manual_seed(0)
    layers = [method.conv(3, 4, 3, stride=2), nn.Flatten(), method.linear_layer(16, 5)]
    return nn.Sequential(*layers).double()


def batch() -> torch.Tensor:
    """The global batch."""
    return torch.randn(BATCH, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradients(model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients of a mean over the batch."""
    model(x).square().sum(1).mean().backward()
    return _gradients(model)


def shared_gradients(model: DistributedDataParallel, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same image by image, with one parameter transformation; the last image makes the processes talk."""
    with onelip.shared_transforms(model):
        for left in reversed(range(len(x))):
            with model.no_sync() if left else nullcontext():
                (model(x[left : left + 1]).square().sum() / len(x)).backward()
    return _gradients(model)


def refusals(x: torch.Tensor) -> list[str]:
    """What is said where DDP would look for parameters in the graph, or count on the order of the first pass."""
    model, messages = build(list_methods()[0]).to(x.device), []
    searching = DistributedDataParallel(model, find_unused_parameters=True)
    for wrapped in (searching, DistributedDataParallel(model, static_graph=True)):
        try:
            shared_gradients(wrapped, x)
        except onelip.InvalidInputError as error:
            messages.append(str(error))
    return messages


def _gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def run(rank: int, world_size: int, folder: str, device: str = "cpu") -> None:
    """Process entry point: rank 0 saves what it got."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=world_size)
    part = batch().chunk(world_size)[rank].to(device)
    found = {}
    for method in list_methods():
        wrapped = DistributedDataParallel(build(method).to(device))
        found[method.key] = gradients(wrapped, part)
        found[f"{method.key} shared"] = shared_gradients(DistributedDataParallel(build(method).to(device)), part)
    found["refused"] = refusals(part)
    if rank == 0:
        torch.save(found, Path(folder) / "gradients.pt")
    distributed.barrier()
    distributed.destroy_process_group()
