"""What training approximates is declared, as small as declared, and can be turned off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import onelip
from onelip.fast import autocorrelation
from onelip.layers import MethodInfo, list_methods
from onelip.layers.kernel_layers import MatrixLinear
from onelip.layers.layer import LipschitzLayer

METHODS = [pytest.param(method, id=method.key) for method in list_methods()]
CONDITION = 30


def _conditioned(shape: tuple[int, ...]) -> Tensor:
    """Singular values from 1 down to 1 / CONDITION, of the matrix of the first dimension and all others."""
    rows, columns = shape[0], math.prod(shape[1:])
    values = torch.logspace(0, -math.log10(CONDITION), min(rows, columns), dtype=torch.float64)
    left, right = (torch.linalg.qr(torch.randn(n, len(values), dtype=torch.float64))[0] for n in (rows, columns))
    return ((left * values) @ right.mT).reshape(shape).float()


def _layers(method: MethodInfo) -> list[tuple[LipschitzLayer, Tensor]]:
    torch.manual_seed(0)
    layers = [
        (method.conv(16, 16, 3), torch.randn(4, 16, 8, 8)),
        (method.conv(16, 16, 1), torch.randn(4, 16, 4, 4)),
        (method.linear_layer(24, 24), torch.randn(4, 24)),
    ]
    with torch.no_grad():
        for layer, _ in layers:
            for name, parameter in layer.named_parameters():
                if name != "bias" and parameter.dim() in (2, 4):
                    parameter.copy_(_conditioned(tuple(parameter.shape)))
                elif name != "bias" and parameter.dim() == 3:
                    parameter.copy_(torch.stack([_conditioned(tuple(part.shape)) for part in parameter]))
    return layers


@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_training_is_as_close_to_evaluation_as_declared(method: MethodInfo) -> None:
    """Estimates of a norm follow the weights, which are new here; SOC's series is not what its layers take here."""
    for layer, x in _layers(method):
        trained, evaluated = layer.train()(x), layer.eval()(x)
        if method.training_approximation:
            assert not torch.equal(trained, evaluated)
        for _ in range(5 if "power_vectors" in layer.state_dict() else 0):
            trained = layer.train()(x)
        assert (trained - evaluated).norm() <= method.training_error * x.norm()


@pytest.mark.parametrize("key", ["aol", "sll", "bjorck", "oni"])
@torch.no_grad()
def test_wide_kernels_are_as_close_as_declared(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the products that wide 3 x 3 kernels take, for narrow ones."""
    monkeypatch.setattr(autocorrelation, "CONVOLUTION_UP_TO", 0)
    monkeypatch.setattr(autocorrelation, "SHORT_FROM", 1)
    method = next(method for method in list_methods() if method.key == key)
    layer, x = _layers(method)[0]
    trained, evaluated = layer.train()(x), layer.eval()(x)
    assert (trained - evaluated).norm() <= method.training_error * x.norm()
    with onelip.exact_transforms():
        assert torch.equal(layer.train()(x), evaluated)


@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_exact_transforms_are_those_of_evaluation(method: MethodInfo) -> None:
    for layer, x in _layers(method):
        with onelip.exact_transforms():
            trained = layer.train()(x)
        assert torch.equal(trained, layer.eval()(x))


def test_exact_transforms_have_gradients() -> None:
    """Those of float64, to rounding; training's own differ from them by its approximation."""
    for layer, x in _layers(next(method for method in list_methods() if method.key == "lot")):
        weight = layer.get_parameter("weight")

        def gradient(weight: Tensor = weight, layer: LipschitzLayer = layer, x: Tensor = x) -> Tensor:
            return torch.autograd.grad(layer.train()(x).relu().sum(), weight)[0].double()

        usual = gradient()
        with onelip.exact_transforms():
            exact = gradient()
        layer.double()
        (expected,) = torch.autograd.grad(layer(x.double()).relu().sum(), layer.get_parameter("weight"))
        for found in (usual, exact):
            assert (found - expected).norm() <= 2e-3 * expected.norm()


@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_first_outputs_are_as_close_as_declared(method: MethodInfo) -> None:
    """Those that a network uses of its last layer, by what training takes for few of them."""
    torch.manual_seed(0)
    layer, x = method.linear_layer(128, 128), torch.randn(4, 128)
    if not isinstance(layer, MatrixLinear):
        pytest.skip("not a layer of one matrix")
    layer.weight.copy_(_conditioned((128, 128)))
    request = replace(layer.request(), rows=3)
    trained = layer.build(layer.tensors_to_transform(), request).apply(x, layer.bias)
    evaluated = layer.eval()(x)[:, :3]
    assert (trained - evaluated).norm() <= method.training_error * x.norm()
