"""Training memory on CPUs and accelerators, counted on tensors without numbers: near that of the plain network.

A layer's images, parameters, gradients and momentum are what a plain network needs too. What a method adds, the
transformed parameters and all that lies between them and its own, is bounded here.
"""

from __future__ import annotations

import functools
import gc

import pytest
import torch
from shipped_methods import SHIPPED

from onelip.bench.measurement.memory import LiveTensors
from onelip.bench.measurement.networks import training_step
from onelip.linalg.devices import Forms, pretend_device
from onelip.models import ConvNet

LARGEST_RATIO = 1.5


@functools.cache
def _peak(method: str, forms: Forms) -> int:
    """Bytes of two steps of ConvNet M, 256 images."""
    gc.collect()
    with torch.device("meta"), pretend_device(forms):
        net, x = ConvNet(method, "M", 10).train(), torch.empty(256, 3, 32, 32)
        labels = torch.empty(256, dtype=torch.long)
        with LiveTensors() as live:
            live.add([*net.parameters(), *net.buffers(), x, labels])
            step = training_step(net, x, labels)
            step()
            step()
    return live.peak


@pytest.mark.parametrize("method", SHIPPED)
@pytest.mark.parametrize("forms", ["cpu", "accelerator"])
def test_training_memory_is_near_that_of_the_plain_network(method: str, forms: Forms) -> None:
    assert _peak(method, forms) <= LARGEST_RATIO * _peak("standard", forms)
