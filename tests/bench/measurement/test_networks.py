"""The networks that are measured, and what a step and a pass of inference do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

from onelip.bench.measurement import REFERENCE, ReferenceConvNet
from onelip.bench.measurement.networks import build_network, for_inference, leave_start, random_batch, training_step
from onelip.bench.records import NetworkSpec
from onelip.models import ConvNet


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_reference_and_network_have_the_same_shapes() -> None:
    small = NetworkSpec(method="standard", width=4)
    for network in (small, replace(small, kernel_size=5), NetworkSpec(method="standard", dataset="tiny-imagenet")):
        plain, reference = (build_network(replace(network, method=method)) for method in ("standard", REFERENCE))
        assert isinstance(plain, ConvNet)
        assert isinstance(reference, ReferenceConvNet)
        assert _parameters(plain) == _parameters(reference)
        x, labels = random_batch(network, 2)
        assert reference(x).shape == plain(x).shape == (2, network.data.num_classes)
        assert labels.shape == (2,)


def test_a_step_updates_and_starts_from_fresh_gradients() -> None:
    model = nn.Linear(12, 3)
    step = training_step(model, torch.rand(4, 12), torch.tensor([0, 1, 2, 0]))
    start = model.weight.detach().clone()
    gradients = []
    for _ in range(2):
        step()
        assert model.weight.grad is not None
        gradients.append(model.weight.grad.clone())
    assert not torch.equal(model.weight, start)
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-3, msg="of one batch, not of two")


def test_no_weight_stays_at_its_start() -> None:
    model = nn.Linear(3, 3)
    nn.init.eye_(model.weight)
    leave_start(model)
    assert model.weight.count_nonzero() == 9


@pytest.mark.parametrize("width", [16, 1024])
def test_matrices_of_all_widths_stay_near_orthogonal_ones(width: int) -> None:
    """With noise of one size, that in 1024 channels would be larger than the weights."""
    torch.manual_seed(0)
    model = nn.Linear(width, width)
    nn.init.eye_(model.weight)
    leave_start(model)
    values = torch.linalg.svdvals(model.weight)
    assert 1.1 < values[0] / values[-1] < 2


def test_inference_has_the_values_of_the_parametrised_network() -> None:
    torch.manual_seed(0)
    make: Callable[..., Any] = spectral_norm
    model, x = nn.Sequential(make(nn.Linear(4, 4)), nn.ReLU(), make(nn.Linear(4, 4))), torch.rand(2, 4)
    expected = model.eval()(x)
    ready = for_inference(model)
    assert not ready.training
    assert not any(parametrize.is_parametrized(module) for module in ready.modules())
    assert torch.equal(ready(x), expected)
