"""Layers that are alike are transformed together: the same layers, the same gradients, and nothing left behind."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onelip.fast.stacking import stacked_transforms
from onelip.layers import MethodInfo, create_conv, create_linear, list_methods
from onelip.layers.contract import Request
from onelip.layers.layer import LipschitzLayer
from onelip.models import ConvNet

METHODS = list_methods()
SIZE = (6, 6)


def _stirred(method: str, channels: int = 4, kind: str = "circular") -> LipschitzLayer:
    if kind == "linear":
        layer: LipschitzLayer = create_linear(method, channels, channels, dtype=torch.float64)
    else:
        layer = create_conv(method, channels, channels, 3, padding_mode=kind, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer.train()


def _outputs_and_gradients(layers: list[LipschitzLayer], x: torch.Tensor) -> list[torch.Tensor]:
    outputs = [layer(x) for layer in layers]
    total = sum((y * torch.linspace(0, 1, y.numel(), dtype=y.dtype).view_as(y)).sum() for y in outputs)
    assert isinstance(total, torch.Tensor)
    parameters = [p for layer in layers for p in layer.parameters()]
    return [*outputs, *torch.autograd.grad(total, parameters)]


KINDS = [(method, kind) for method in METHODS for kind in (*method.conv.padding_modes, "linear")]


@pytest.mark.parametrize(("method", "kind"), [pytest.param(m, kind, id=f"{m.key}-{kind}") for m, kind in KINDS])
def test_together_is_the_same_as_one_by_one(method: MethodInfo, kind: str) -> None:
    torch.manual_seed(0)
    layers = [_stirred(method.key, kind=kind) for _ in range(3)]
    x = torch.randn(2, *((4,) if kind == "linear" else (4, *SIZE)), dtype=torch.float64)
    state = [{name: t.clone() for name, t in layer.state_dict().items()} for layer in layers]
    alone = _outputs_and_gradients(layers, x)
    for layer, saved in zip(layers, state, strict=True):
        layer.load_state_dict(saved)  # CPL's power vectors move on in training
    calls = []
    original = type(layers[0]).transform_tensors
    with pytest.MonkeyPatch.context() as patch:

        def counted(self: LipschitzLayer, tensors: dict[str, torch.Tensor], request: Request) -> object:
            calls.append(request)
            return original(self, tensors, request)

        patch.setattr(type(layers[0]), "transform_tensors", counted)
        with stacked_transforms([(layer, SIZE) for layer in layers]):
            together = _outputs_and_gradients(layers, x)
    assert len(calls) == 1 or not layers[0].traits.transforms_parameters
    for expected, actual in zip(alone, together, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)


def test_layers_that_differ_are_not_mixed() -> None:
    torch.manual_seed(1)
    layers = [_stirred("aol"), _stirred("lot"), _stirred("aol"), _stirred("aol", channels=3)]
    inputs = [torch.randn(1, 3 if index == 3 else 4, *SIZE, dtype=torch.float64) for index in range(4)]
    expected = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    with stacked_transforms([(layer, SIZE) for layer in layers]):
        actual = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_what_is_not_used_is_taken_back() -> None:
    layers = [_stirred("aol"), _stirred("aol")]
    x = torch.randn(1, 4, *SIZE, dtype=torch.float64)

    def fail() -> None:
        with stacked_transforms([(layer, SIZE) for layer in layers]):
            layers[0](x)
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    with torch.no_grad():
        layers[1].get_parameter("weight").mul_(-1)
    torch.testing.assert_close(layers[1](x), layers[1].eval()(x), rtol=0, atol=1e-12)


def test_another_image_size_than_announced() -> None:
    layers = [_stirred("lot"), _stirred("lot")]
    x = torch.randn(1, 4, 5, 5, dtype=torch.float64)
    expected = layers[0](x)
    with stacked_transforms([(layer, SIZE) for layer in layers]):
        torch.testing.assert_close(layers[0](x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
def test_a_network_transforms_each_block_once(method: MethodInfo) -> None:
    torch.manual_seed(2)
    net = ConvNet(method.key, None, 10, width=4, dtype=torch.float64).train()
    calls = []
    layer_types = {type(module) for module in net.modules() if isinstance(module, LipschitzLayer)}
    with pytest.MonkeyPatch.context() as patch:
        for kind in layer_types:
            original = kind.transform_tensors

            def counted(self: nn.Module, tensors: object, size: object, original: object = original) -> object:
                calls.append(size)
                return original(self, tensors, size)  # type: ignore[operator]

            patch.setattr(kind, "transform_tensors", counted)
        net(torch.randn(2, 3, 32, 32, dtype=torch.float64))
    if method.conv.traits.transforms_parameters:
        assert len(calls) == 5 + 2  # blocks, stem and head


@pytest.mark.parametrize(("method", "width", "calls"), [("bcop", 3, 1), ("bcop", 4, 2), ("spectral", 4, 1)])
def test_wide_layers_stay_alone(method: str, width: int, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a width on that is 4 here, unless their transformation takes products with vectors alone."""
    torch.manual_seed(3)
    monkeypatch.setattr("onelip.layers.layer.WIDEST_TOGETHER", 3)
    layers = [_stirred(method, channels=width) for _ in range(2)]
    x = torch.randn(1, width, *SIZE, dtype=torch.float64)
    done, transform = [], type(layers[0]).transform_tensors
    monkeypatch.setattr(type(layers[0]), "transform_tensors", lambda *given: done.append(0) or transform(*given))
    with stacked_transforms([(layer, SIZE) for layer in layers]):
        for layer in layers:
            layer(x)
    assert len(done) == calls
