"""Layers whose parameters are sharded by FSDP2, on a process group that sends nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import onelip
from onelip.layers import MethodInfo, list_methods
from onelip.models import ConvNet

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::FutureWarning:torch.*")
METHODS = [pytest.param(method, id=method.key) for method in list_methods()]


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """One process: what it gathers is its own, so that all numbers are those of the plain network."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        distributed.destroy_process_group()


def _network(method: MethodInfo) -> ConvNet:
    torch.manual_seed(0)
    return ConvNet(method.key, None, 4, input_size=8, width=4).train()


def _gradients(network: nn.Module) -> list[torch.Tensor]:
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    network(x).square().sum().backward()
    found = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    return [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in found]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unit", ["block", "layer"])
def test_fully_sharded(method: MethodInfo, unit: str, mesh: DeviceMesh) -> None:
    """Equal layers of a unit are transformed together, those of several units one by one: only one is gathered.

    FSDP2 takes no parameters without dimensions, such as Cayley's alpha: those stay whole.
    """
    network = _network(method)
    expected = _gradients(copy.deepcopy(network))
    whole = {parameter for parameter in network.parameters() if parameter.dim() == 0}
    blocks = [module for name, module in network.named_children() if name.startswith("block")]
    layers = [module for block in blocks for module in block.children() if list(module.parameters())]
    wrap = partial(fully_shard, mesh=mesh, ignored_params=whole) if whole else partial(fully_shard, mesh=mesh)
    for module in [*(blocks if unit == "block" else layers), network]:
        wrap(module)
    assert all(isinstance(parameter, DTensor) or parameter in whole for parameter in network.parameters())
    torch.testing.assert_close(_gradients(network), expected, rtol=1e-4, atol=1e-5)


def test_sharded_models_share_no_transformation(mesh: DeviceMesh) -> None:
    network = fully_shard(_network(list_methods()[0]), mesh=mesh)
    assert isinstance(network, nn.Module)
    with pytest.raises(onelip.InvalidInputError, match="not sharded"), onelip.shared_transforms(network):
        pass


def test_frozen_layers_of_a_sharded_model(mesh: DeviceMesh) -> None:
    """Their storages are freed after each pass: what looks at them must not hold on to them."""
    network = _network(onelip.get_method("lot"))
    for parameter in network.get_submodule("block1").parameters():
        parameter.requires_grad_(False)
    expected = _gradients(copy.deepcopy(network))
    for module in (network.get_submodule("block1"), network):
        fully_shard(module, mesh=mesh)
    for _ in range(2):
        torch.testing.assert_close(_gradients(network), expected, rtol=1e-4, atol=1e-5)
        network.zero_grad()
