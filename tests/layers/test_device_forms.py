"""The forms of accelerators, without one: the same layers as on a CPU, few operations, and nothing looks at a number.

Operations are counted on meta tensors with the forms of accelerators, which is what a GPU would launch: views and
allocations are free, everything else is at least one kernel.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import layer_contract as contract
import pytest
import torch
from shipped_methods import SHIPPED
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from onelip.bench.measurement.launches import Launches
from onelip.fast.stacking import stacked_transforms
from onelip.layers import MethodInfo, create_conv, list_methods
from onelip.layers.fft_products import half_spectrum, spectrum_to_kernel
from onelip.linalg import constants
from onelip.linalg.devices import pretend_device
from onelip.linalg.fourier import kernel_to_frequency
from onelip.models import ConvNet, FastNet, LiResNet

METHODS = [pytest.param(method, id=method.key) for method in list_methods()]
LAUNCHES = {"standard": 110}
"""Largest number of launches of a forward pass in training of ConvNet XS, where it is not `MOST_LAUNCHES`."""
MOST_LAUNCHES = 400


@pytest.mark.parametrize("method", SHIPPED)
def test_launches_of_a_training_pass(method: str) -> None:
    with torch.device("meta"), pretend_device("accelerator"), torch.no_grad():
        net, x = ConvNet(method, "XS", 10).train(), torch.empty(256, 3, 32, 32)
        net(x)  # constants are made once
        with Launches() as launches:
            net(x)
    assert launches.counts.total() <= LAUNCHES.get(method, MOST_LAUNCHES), launches.counts.most_common(12)


class NoFloat64(TorchDispatchMode):
    """Refuses what a device without float64 refuses."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            wide = isinstance(tensor, Tensor) and tensor.dtype in (torch.float64, torch.complex128)
            assert not (wide and tensor.is_meta), f"{func} has a result of {tensor.dtype}"
        return result


NETWORKS = [
    *(pytest.param(lambda key=m.key: ConvNet(key, None, 10, width=4), id=m.key) for m in list_methods()),
    pytest.param(lambda: FastNet(width=16), id="fastnet"),
    pytest.param(lambda: LiResNet("bro", width=16, depth=2, dense=2, dense_width=32), id="liresnet"),
]


@pytest.mark.parametrize("build", NETWORKS)
def test_a_step_looks_at_no_number_and_has_no_float64(build: Callable[[], nn.Module]) -> None:
    """Meta tensors have no numbers: whatever asks for one, and would make the host wait for a device, raises."""
    with torch.device("meta"), pretend_device("mps"), NoFloat64():
        net = build().train()
        net(torch.empty(2, 3, 32, 32)).square().sum().backward()
        net.eval()(torch.empty(2, 3, 32, 32))
    assert all(parameter.grad is not None for parameter in net.parameters() if parameter.requires_grad)


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of torch.linalg:UserWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["circular", "linear"])
def test_the_forms_of_xla_are_the_same_layers(method: MethodInfo, kind: str) -> None:
    layer, x = contract.make(method, kind), contract.samples(kind)
    for training in (True, False):
        other = copy.deepcopy(layer.train(training))
        expected = _trained(layer, x) if training else [layer(x)]
        with pretend_device("xla"):
            actual = _trained(other, x) if training else [other(x)]
        torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


def _trained(net: nn.Module, x: Tensor) -> list[Tensor]:
    y = net(x)
    weights = torch.linspace(0, 1, y.numel(), dtype=y.dtype).view_as(y)
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    return [y, *torch.autograd.grad((y * weights).sum(), parameters)]


def _stirred_network(method: str) -> ConvNet:
    torch.manual_seed(0)
    net = ConvNet(method, None, 3, input_size=16, width=4, dtype=torch.float64).train()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


@pytest.mark.parametrize("method", METHODS)
def test_both_forms_are_the_same_layers(method: MethodInfo) -> None:
    """Outputs, gradients and what training leaves behind, in float64; and evaluation, which has one form each."""
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    net, other = _stirred_network(method.key), _stirred_network(method.key)
    expected = _trained(net, x)
    with pretend_device("accelerator"):
        actual = _trained(other, x)
    for here, there in zip(actual, expected, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-6, atol=1e-7 * float(there.detach().abs().max()))
    for name, value in net.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, msg=name, rtol=1e-6, atol=1e-7)
    with pretend_device("accelerator"), torch.no_grad():
        evaluated = other.eval()(x)
    torch.testing.assert_close(evaluated, net.eval()(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
def test_layers_of_several_widths_are_one_batch(method: MethodInfo, padding_mode: str) -> None:
    torch.manual_seed(2)
    options: dict[str, Any] = {"dtype": torch.float64, "padding_mode": padding_mode}
    widths = 4, 8, 4, 6
    layers = [create_conv(method.key, width, width, 3, **options).train() for width in widths]
    inputs = [torch.randn(1, width, 5, 5, dtype=torch.float64) for width in widths]
    state = [{name: value.clone() for name, value in layer.state_dict().items()} for layer in layers]
    with pretend_device("accelerator"):
        expected = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
        for layer, saved in zip(layers, state, strict=True):
            layer.load_state_dict(saved)
        with stacked_transforms([(layer, (5, 5)) for layer in layers]):
            actual = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("torus", [(4, 4), (5, 7), (8, 6), (1, 1)])
def test_the_half_spectrum_is_that_of_the_kernel_and_back(torus: tuple[int, int]) -> None:
    kernel = torch.randn(2, 4, 3, 3, 5, dtype=torch.float64)
    expected = kernel_to_frequency(kernel, torus).flatten(-4, -3)
    torch.testing.assert_close(half_spectrum(kernel, torus), expected, rtol=0, atol=1e-13)
    whole = torch.randn(2, 4, 3, *torus, dtype=torch.float64)
    torch.testing.assert_close(spectrum_to_kernel(half_spectrum(whole, torus), torus), whole, rtol=0, atol=1e-13)


def test_constants_of_a_fake_mode_live_as_long_as_it() -> None:
    made = []

    def make(device: torch.device) -> Tensor:
        made.append(device)
        return torch.ones(2, device=device)

    for _ in range(2):
        with FakeTensorMode():
            assert constants.cached_constant(("test of fake",), None, make) is constants.cached_constant(
                ("test of fake",), None, make
            )
    assert len(made) == 2
    real = constants.cached_constant(("test of fake",), None, make)
    assert type(real) is Tensor
