"""Networks of 1-Lipschitz layers.

ConvNet("aol", "XS", num_classes=10)          # the network of the comparison paper, with AOL layers
create("tiny-imagenet-m-lot")                 # by name
FastNet(width=64)                             # onelip's own, for minutes on a CPU
"""

from __future__ import annotations

from typing import Any

from onelip.models.acceleration import accelerate
from onelip.models.config import ACTIVATIONS, ConvNetConfig
from onelip.models.convnet import ConvNet, create
from onelip.models.fastnet import FastNet
from onelip.models.lipnextnet import LipNeXt
from onelip.models.liresnet import BRONet, LiResNet
from onelip.models.named_network import NamedNetwork
from onelip.protocol import WIDTHS

NETWORKS: dict[str, type[Any]] = {"fastnet": FastNet, "liresnet": LiResNet, "bronet": BRONet, "lipnext": LipNeXt}
"""`NamedNetwork` classes by the name that `--model` and files of weights know them by; the paper's is "convnet"."""

__all__ = [
    "ACTIVATIONS",
    "NETWORKS",
    "WIDTHS",
    "BRONet",
    "ConvNet",
    "ConvNetConfig",
    "FastNet",
    "LiResNet",
    "LipNeXt",
    "NamedNetwork",
    "accelerate",
    "create",
]
