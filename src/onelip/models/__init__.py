"""Networks of 1-Lipschitz layers.

ConvNet("aol", "XS", num_classes=10)          # the network of the comparison paper, with AOL layers
create("tiny-imagenet-m-lot")                 # by name
"""

from __future__ import annotations

from onelip.models.config import ACTIVATIONS, ConvNetConfig
from onelip.models.convnet import ConvNet, create
from onelip.protocol import WIDTHS

__all__ = ["ACTIVATIONS", "WIDTHS", "ConvNet", "ConvNetConfig", "create"]
