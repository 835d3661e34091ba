"""Every method on another device than the CPU: `make test-accelerator` (XLA), or wherever torch finds a card.

TEST_DEVICE names the device (xla, cuda, mps). Without one the CPU stands for it, with the forms of accelerators, and
the tests that take longer are left out (TEST_DEVICE=cpu has them). Tolerances are relative to magnitudes, as
single precision rounds otherwise on every device.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Iterator

import layer_contract as contract
import pytest
import torch
from torch import nn

import onelip
from onelip.bench.measurement.second_device import (
    DeviceRow,
    HostWork,
    Kind,
    compare_layer,
    difference,
    forms_of,
    host_work,
    second_device,
    table,
    trained,
    training_step,
)
from onelip.layers import MaxMin, MethodInfo, list_methods
from onelip.linalg.devices import pretend_device
from onelip.models import ConvNet, FastNet

FOUND = second_device(os.environ.get("TEST_DEVICE", "cpu")) or torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("default")  # of the device's package, which is not ours
takes_long = pytest.mark.skipif("TEST_DEVICE" not in os.environ, reason="TEST_DEVICE names no device")
FORWARD, GRADIENTS = 1e-5, 1e-4
"""Relative to the largest magnitude, where a method declares no larger error of training."""

each_method = pytest.mark.parametrize("method", list_methods(), ids=lambda m: m.key)
each_kind = pytest.mark.parametrize("kind", ["convolution", "linear"])


@pytest.fixture
def device() -> Iterator[torch.device]:
    with forms_of(FOUND):
        yield FOUND


@pytest.fixture(scope="module")
def rows() -> Iterator[list[DeviceRow]]:
    found: list[DeviceRow] = []
    yield found
    print(f"\n{table(found)}")


@each_method
@each_kind
def test_layers_agree_with_the_cpu(method: MethodInfo, kind: Kind, device: torch.device, rows: list[DeviceRow]) -> None:
    row = compare_layer(method, kind, device)
    rows.append(row)
    allowed = max(FORWARD, 2 * method.training_error)
    assert row.forward <= allowed
    assert row.gradients <= max(GRADIENTS, 10 * allowed)
    assert row.evaluation <= FORWARD
    assert not row.fallbacks
    assert not row.transfers


@takes_long
@each_method
@pytest.mark.parametrize("case", ["circular", "linear"])
def test_contract(method: MethodInfo, case: str, device: torch.device) -> None:
    with device:
        for state in contract.STATES:
            layer = contract.in_state(method, case, state, torch.float32)
            contract.check_evaluation_is_finite(layer, contract.samples(case, 2, torch.float32))
        contract.check_gradients(method, case)
        contract.check_both_modes_agree(method, case, 1e-12)
        contract.check_stacking(method, case)


def network(method: MethodInfo) -> nn.Module:
    """Small, as XLA compiles a network of 20 layers for minutes."""
    torch.manual_seed(0)
    layers = method.conv(3, 4, 3, stride=2), MaxMin(), method.conv(4, 4, 3), MaxMin(), nn.Flatten()
    net = nn.Sequential(*layers, method.linear_layer(64, 10))
    contract.perturb(net, 0.02)
    return net


def check_step(net: nn.Module, other: nn.Module, x: torch.Tensor, device: torch.device) -> HostWork:
    """Same outputs and gradients but for what training approximates, and the work of the host in a second step."""
    other = other.to(device)
    with onelip.exact_transforms():
        there = trained(other, x.to(device))
        with pretend_device("cpu"):
            here = trained(net, x)
    assert difference(there.pop("output"), here.pop("output")) <= 1e-4
    largest = max(float(gradient.abs().max()) for gradient in here.values())
    for name, gradient in here.items():
        if float(gradient.abs().max()) > 1e-5 * largest:  # what is smaller is rounding alone, of sums that cancel
            assert difference(there[name], gradient) <= 1e-2, name
    step, given = training_step(other), x.to(device)
    step(given)
    with host_work(device) as work:
        step(given)
    return work[0]


@takes_long
@each_method
def test_a_network_trains_certifies_and_is_saved(method: MethodInfo, device: torch.device) -> None:
    net, x = network(method), torch.randn(4, 3, 8, 8)
    other = copy.deepcopy(net)
    work = check_step(net, other, x, device)
    assert not work.fallbacks
    assert not work.transfers
    other.eval()
    buffer = io.BytesIO()
    torch.save({name: value.cpu() for name, value in other.state_dict().items()}, buffer)
    buffer.seek(0)
    net.load_state_dict(torch.load(buffer))
    net.eval()
    with torch.no_grad():
        assert difference(other(x.to(device)), net(x)) <= 1e-4
    certificate, expected = onelip.certify(other, x.to(device)), onelip.certify(net, x)
    assert torch.equal(certificate.predictions.cpu(), expected.predictions)
    assert difference(certificate.radii, expected.radii) <= 1e-3


@takes_long
@pytest.mark.parametrize("build", [lambda: ConvNet("aol", None, 10, width=4), lambda: FastNet(width=16)])
def test_whole_networks_train(build: Callable[[], nn.Module], device: torch.device) -> None:
    torch.manual_seed(0)
    net = build()
    work = check_step(net, copy.deepcopy(net), torch.randn(4, 3, 32, 32), device)
    assert not work.fallbacks
    assert not work.transfers
