"""The networks that are measured, one batch for them, and one step of their training.

A network is named by a `NetworkSpec`. Its method is one of onelip's, "reference" for the plain network of all ratios,
or the layers of another package, such as orthogonium:aoc (`peers`). Its model may be another than ConvNet, also one of
the user's own; the plain network of its ratios is the ConvNet of the same size, of size XS beside a user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from onelip.bench.measurement.peers import PEERS, replace_layers
from onelip.bench.measurement.reference import ReferenceConvNet
from onelip.bench.records.new_networks import network_config, new_network
from onelip.models import NETWORKS
from onelip.protocol import REFERENCE

if TYPE_CHECKING:  # runs know much more than networks, none of which changes what is measured
    from onelip.bench.records import NetworkSpec

_NOISE = 0.08
_LEARNING_RATE = 1e-4  # has no influence on time or memory; small, so that random labels never lead to overflow


def build_network(network: NetworkSpec, device: torch.device | None = None) -> nn.Module:
    """The network in training mode."""
    if network.method == REFERENCE and not network.is_factory:
        config = network_config(network)
        model = ReferenceConvNet(config.channels, config.num_classes, config.padded_size, config.kernel_size)
        if any(config.image_padding):
            model = nn.Sequential(nn.ZeroPad2d(config.image_padding), model)
    elif network.method in PEERS:  # whose layers replace those of a plain network
        model = replace_layers(new_network(replace(network, method=REFERENCE)), PEERS[network.method]())
    else:
        model = new_network(network, device=device if network.model in NETWORKS else None)
    return (model if device is None else model.to(device)).train()


def reference_of(network: NetworkSpec) -> NetworkSpec:
    """The plain network that times are compared with."""
    return replace(network, method=REFERENCE, model="convnet")


def check_network(network: NetworkSpec) -> None:
    """Refuse what no network can be built from; a user's own is built when it is measured."""
    if network.model in NETWORKS:
        build_network(network, torch.device("meta"))
    elif not network.is_factory:
        network_config(replace(network, method=REFERENCE) if network.method in PEERS else network)


def random_batch(network: NetworkSpec, batch_size: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and labels, of the shapes of the data set."""
    data = network.data
    x = torch.rand(batch_size, *data.shape, device=device)
    return x, torch.randint(data.num_classes, (batch_size,), device=device)


@torch.no_grad()
def leave_start(network: nn.Module) -> None:
    """Move every weight a little, as the first steps of a training do.

    Close to a start as the identity many numbers are zero or denormal. Processors are up to five times slower with the
    latter, which says nothing about training: there they are gone after a few steps. The norm of an n x n matrix of
    normal noise is 2 n^(1/2) times its standard deviation, which is _NOISE n^(-1/2) for that reason: matrices of all
    widths stay equally close to orthogonal ones (docs/measuring.md has what training makes of them).
    """
    for parameter in network.parameters():
        width = max(parameter.shape, default=1)
        parameter.add_(_NOISE * width**-0.5 * torch.randn_like(parameter))


def training_step(model: nn.Module, x: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward pass, backward pass and update by SGD with momentum 0.9, as one call."""
    optimiser = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimiser.step()

    return step


def for_inference(model: nn.Module) -> nn.Module:
    """The same module in evaluation mode, with torch's parametrisations replaced by the tensors they compute.

    Onelip's layers keep their transformed parameters by themselves; the peers recommend this replacement.
    """
    for module in list(model.eval().modules()):
        if parametrize.is_parametrized(module):
            for name in list(module.parametrizations):  # pyright: ignore[reportArgumentType, reportCallIssue]
                parametrize.remove_parametrizations(module, name)
    return model
