"""Transformations that accelerators do again in the backward pass: the gradients of those that are kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onelip.fast import recompute
from onelip.layers import MethodInfo, create_conv, list_methods
from onelip.layers.operator_sources import HOOKS
from onelip.linalg.devices import pretend_device
from onelip.models import ConvNet

METHODS = [pytest.param(method, id=method.key) for method in list_methods()]


def _network(method: str) -> ConvNet:
    torch.manual_seed(0)
    net = ConvNet(method, None, 3, input_size=8, width=4, dtype=torch.float64).train()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


def _pass(net: nn.Module) -> list[Tensor]:
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = net(x)
    weights = torch.linspace(0, 1, y.numel(), dtype=y.dtype).view_as(y)
    leaves = [parameter for parameter in net.parameters() if parameter.requires_grad]
    return [y, *torch.autograd.grad((y * weights).sum(), leaves)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bytes_at_once", [1, 2**11, 2**22])
def test_gradients_are_those_of_a_kept_transformation(
    monkeypatch: pytest.MonkeyPatch, method: MethodInfo, bytes_at_once: int
) -> None:
    """Layers one by one, a few at a time and all at once; with the states that they leave for the next step."""
    kept, again = _network(method.key), _network(method.key)
    with pretend_device("accelerator"):
        with monkeypatch.context() as plain:
            plain.setattr(HOOKS, "around", ())
            expected = [*_pass(kept), *_pass(kept)]
        monkeypatch.setattr(recompute, "BYTES_AT_ONCE", bytes_at_once)
        actual = [*_pass(again), *_pass(again)]
    for here, there in zip(actual, expected, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-7, atol=1e-8 * float(there.detach().abs().max()))


@pytest.mark.parametrize("method", METHODS)
def test_the_backward_pass_may_come_later(method: MethodInfo) -> None:
    """Outside of the context that chose the forms, in evaluation mode, of a network that is frozen in part, twice."""
    net, same = _network(method.key), _network(method.key)
    for each in (net, same):
        next(parameter for name, parameter in each.named_parameters() if name.endswith("weight")).requires_grad_(False)
    with pretend_device("accelerator"):
        expected = _pass(same)
        y = net(torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    net.eval()
    weights = torch.linspace(0, 1, y.numel(), dtype=y.dtype).view_as(y)
    leaves = [parameter for parameter in net.parameters() if parameter.requires_grad]
    for _ in range(2):
        found = torch.autograd.grad((y * weights).sum(), leaves, retain_graph=True)
        for here, there in zip(found, expected[1:], strict=True):
            torch.testing.assert_close(here, there, rtol=1e-7, atol=1e-8 * float(there.abs().max()))


@pytest.mark.parametrize("method", ["aol", "cayley", "soc", "bjorck"])
def test_second_derivatives(method: str) -> None:
    torch.manual_seed(3)
    layer = create_conv(method, 2, 2, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.get_parameter("weight").add_(0.3 * torch.randn(2, 2, 3, 3, dtype=torch.float64))
    layer.train()
    x = torch.randn(1, 2, 3, 3, dtype=torch.float64)
    with pretend_device("accelerator"):
        (first,) = torch.autograd.grad(layer(x).square().sum(), layer.get_parameter("weight"), create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), layer.get_parameter("weight"))
    with torch.no_grad():
        direction = torch.randn_like(second)

    def energy(step: float) -> Tensor:
        moved = layer.get_parameter("weight").detach() + step * direction
        moved.requires_grad_()
        with pretend_device("accelerator"):
            y = torch.func.functional_call(layer, {"weight": moved}, (x,))
            (gradient,) = torch.autograd.grad(y.square().sum(), moved)
        return gradient.square().sum()

    difference = (energy(1e-5) - energy(-1e-5)) / 2e-5
    torch.testing.assert_close((second * direction).sum(), difference, rtol=1e-5, atol=1e-8)


def test_nothing_but_the_parameters_is_kept() -> None:
    saved: list[Tensor] = []
    with pretend_device("accelerator"):
        layer = create_conv("bjorck", 4, 4, 3)
        layer.train()
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda x: x):
            layer.transform((8, 8))
    assert [id(tensor) for tensor in saved] == [id(layer.get_parameter("weight"))]
