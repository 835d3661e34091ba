"""What people do with a card: tf32, bfloat16, channels_last, compilers, CUDA graphs, two processes.

`make test-gpu` runs this file on CUDA. TEST_DEVICE=cpu runs the same lines with the CPU in the place of the card, where
a captured step is the step itself.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import ddp_worker
import pytest
import torch
from torch import Tensor, nn

import onelip
from onelip.bench.measurement.second_device import difference, forms_of, second_device
from onelip.layers import MethodInfo, list_methods
from onelip.models import ConvNet

NAME = os.environ.get("TEST_DEVICE")
pytestmark = [
    pytest.mark.skipif(NAME not in ("cuda", "cpu"), reason="needs TEST_DEVICE=cuda, as make test-gpu sets it"),
    pytest.mark.skipif(NAME == "cuda" and not torch.cuda.is_available(), reason="torch finds no CUDA device"),
    pytest.mark.filterwarnings("default"),  # of compilers and drivers, which are not ours
]
each_method = pytest.mark.parametrize("method", list_methods(), ids=lambda m: m.key)


@pytest.fixture
def device() -> Iterator[torch.device]:
    found = second_device(NAME)
    assert found is not None
    with forms_of(found):
        yield found


@pytest.fixture(params=[False, True], ids=["ieee", "tf32"])
def tf32(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if request.param else "highest")
    torch.backends.cudnn.allow_tf32 = request.param
    yield request.param
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def network(method: MethodInfo) -> nn.Module:
    torch.manual_seed(0)
    return ConvNet(method.key, None, 10, input_size=16, width=4)


def batch() -> Tensor:
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def step_of(model: nn.Module, x: Tensor) -> Callable[[], None]:
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad(set_to_none=False)
        model(x).float().square().mean().backward()
        optimiser.step()

    return step


def check_finite(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@each_method
def test_a_step_and_certificates_with_and_without_tf32(method: MethodInfo, device: torch.device, tf32: bool) -> None:
    """tf32 may move outputs by some 1e-3; a certifying pass switches it off, so that radii are the CPU's."""
    net, x = network(method), batch()
    other, there = copy.deepcopy(net).to(device), x.to(device)
    step_of(other, there)()
    check_finite(other)
    net.load_state_dict(other.state_dict())
    net.eval()
    other.eval()
    with torch.no_grad():
        assert difference(other(there), net(x)) <= (3e-2 if tf32 else 1e-4)
    certificate, expected = onelip.certify(other, there), onelip.certify(net, x)
    assert torch.equal(certificate.predictions.cpu(), expected.predictions)
    assert difference(certificate.radii, expected.radii) <= 1e-3


@each_method
def test_bfloat16_autocast(method: MethodInfo, device: torch.device) -> None:
    net, x = network(method).to(device), batch().to(device)
    with torch.autocast(device.type, torch.bfloat16):
        step_of(net, x)()
    check_finite(net)
    with torch.no_grad():
        expected = net.eval()(x)
        with torch.autocast(device.type, torch.bfloat16):
            assert difference(net(x), expected) <= 0.2


@each_method
def test_channels_last(method: MethodInfo, device: torch.device) -> None:
    net, x = network(method).to(device), batch().to(device)
    other = copy.deepcopy(net).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    step_of(net, x)()
    step_of(other, x.contiguous(memory_format=torch.channels_last))()
    for (name, parameter), twin in zip(net.named_parameters(), other.parameters(), strict=True):
        assert difference(twin, parameter) <= 1e-3, name


@each_method
def test_compiled(method: MethodInfo, device: torch.device) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(method.conv(3, 4, 3), onelip.layers.MaxMin(), nn.Flatten(), method.linear_layer(64, 5))
    net, x = net.to(device), torch.randn(4, 3, 4, 4).to(device)
    torch.compiler.reset()
    compiled = torch.compile(net, backend="inductor" if device.type == "cuda" else "eager")
    for training in (True, False):
        net.train(training)
        expected = copy.deepcopy(net)(x)
        y = compiled(x)
        assert difference(y, expected) <= max(1e-3, 4 * method.training_error)
        y.square().sum().backward()
    check_finite(net)


def captured(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """A CUDA graph of the step, after warm-up in a stream of its own as torch asks for."""
    if device.type != "cuda":
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@each_method
def test_cuda_graphs(method: MethodInfo, device: torch.device) -> None:
    """A captured step moves the weights as the step itself does; capturing takes three steps to warm up."""
    net, x = network(method).to(device), batch().to(device)
    twin, start = copy.deepcopy(net), copy.deepcopy(net)
    replay = captured(step_of(net, x), device)
    for _ in range(5):
        replay()
    step = step_of(twin, x)
    for _ in range(8 if device.type == "cuda" else 5):
        step()
    check_finite(net)
    for (name, parameter), expected in zip(net.named_parameters(), twin.parameters(), strict=True):
        assert difference(parameter, expected) <= 1e-3, name
    assert any(not torch.equal(new, old) for new, old in zip(net.parameters(), start.parameters(), strict=True))


def test_two_processes(device: torch.device, tmp_path: Path) -> None:
    """One card serves both processes, which talk by gloo."""
    arguments = 2, str(tmp_path), device.type
    torch.multiprocessing.spawn(ddp_worker.run, args=arguments, nprocs=2)  # pyright: ignore[reportPrivateImportUsage]
    found = torch.load(tmp_path / "gradients.pt", map_location="cpu")
    for method in list_methods():
        for name, gradient in ddp_worker.gradients(ddp_worker.build(method), ddp_worker.batch()).items():
            actual = found[method.key][f"module.{name}"]
            assert torch.allclose(actual, gradient, rtol=1e-8, atol=1e-10), (method.key, name)
