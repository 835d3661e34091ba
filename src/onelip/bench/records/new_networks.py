"""The network that a `NetworkSpec` names, as a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.factories import build, find_factory, taken_arguments
from onelip.models import NETWORKS, ConvNet
from onelip.models.config import ConvNetConfig
from onelip.protocol import REFERENCE

if TYPE_CHECKING:  # specs know more than networks, none of which changes what is measured
    from onelip.bench.records import NetworkSpec


def new_network(network: NetworkSpec, setting: str = "own", device: torch.device | str | None = None) -> nn.Module:
    """With fresh parameters, in a setting: onelip's own or the published one."""
    if network.is_factory:
        model = build(find_factory(network.model), own_arguments(network))
        return model if device is None else model.to(device)
    if network.model not in NETWORKS:
        return ConvNet.from_config(network_config(network, setting), device=device)
    padding = {} if network.padding_mode == "auto" else {"padding_mode": network.padding_mode}
    return NETWORKS[network.model](
        method=network.method,
        width=NETWORKS[network.model].info.widths[network.size] if network.size is not None else network.width,
        num_classes=network.data.num_classes,
        input_shape=network.data.shape,
        device=device,
        **padding,
    )


def own_arguments(network: NetworkSpec) -> dict[str, Any]:
    """What a user's function is called with: what it takes of what there is."""
    offered = {"num_classes": network.data.num_classes, "input_shape": list(network.data.shape)}
    return taken_arguments(find_factory(network.model), offered)


def network_config(network: NetworkSpec, setting: str = "own") -> ConvNetConfig:
    """What a ConvNet is built from; the reference has the limits of the network with plain convolutions."""
    if network.model != "convnet":
        known = ", ".join(("convnet", *NETWORKS))
        raise InvalidInputError(f"{network.model!r} is not a ConvNet; known here: {known}")
    data = network.data
    return ConvNetConfig(
        method="standard" if network.method == REFERENCE else network.method,
        size=network.size,
        width=network.width,
        num_classes=data.num_classes,
        input_size=data.image_size,
        input_width=data.image_width,
        in_channels=data.channels,
        kernel_size=network.kernel_size,
        activation=network.activation,
        padding_mode=network.padding_mode,
        init=network.init,
        setting=setting,
    )
