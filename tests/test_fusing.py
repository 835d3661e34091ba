from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.fusing import fuse
from onelip.layers import (
    AOLConv2d,
    AOLLinear,
    CayleyConv2d,
    LipschitzLayer,
    MaxMin,
    create_conv,
    create_linear,
    list_methods,
)
from onelip.models import ConvNet

METHODS = [method.key for method in list_methods()]


def trained_net(method: str, dtype: torch.dtype = torch.float32, **options: object) -> ConvNet:
    """A small network away from its initialisation, where bugs could hide behind identities and zero biases."""
    torch.manual_seed(0)
    net = ConvNet(method, None, 4, 8, width=4, dtype=dtype, **options)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return net


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return ((actual - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize(
    ("method", "padding_mode", "dtype", "tolerance"),
    [
        (method.key, mode, dtype, tolerance)
        for method in list_methods()
        for mode in method.conv.padding_modes
        for dtype, tolerance in [(torch.float32, 1e-5), (torch.float64, 1e-12)]
    ],
)
def test_fused_outputs_equal_the_originals(
    method: str, padding_mode: str, dtype: torch.dtype, tolerance: float
) -> None:
    net = trained_net(method, dtype, padding_mode=padding_mode)
    x = torch.randn(3, 3, 8, 8, dtype=dtype)
    fused = fuse(net)
    assert not any(isinstance(module, LipschitzLayer) for module in fused.modules())
    assert not fused.training
    assert net.training, "the original keeps its mode"
    assert relative_error(fused(x), net.eval()(x)) <= tolerance


@pytest.mark.parametrize("method", METHODS)
def test_fused_models_export(method: str) -> None:
    """Rectangular and strided layers, on images that the stride does not divide."""
    torch.manual_seed(0)
    model = nn.Sequential(
        create_conv(method, 3, 6, 3),
        MaxMin(),
        create_conv(method, 6, 4, 3, stride=2),
        nn.Flatten(),
        create_linear(method, 48, 5),
    )
    fused = fuse(model, (3, 7, 6))
    x = torch.randn(2, 3, 7, 6)
    expected = model.eval()(x)
    assert relative_error(fused(x), expected) <= 1e-5
    assert relative_error(torch.export.export(fused, (x,)).module()(x), expected) <= 1e-5


def test_a_whole_fused_net_exports_with_any_batch() -> None:
    fused = fuse(trained_net("aol"))
    x = torch.randn(2, 3, 8, 8)
    program = torch.export.export(fused, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)).module()
    x = torch.randn(5, 3, 8, 8)
    assert relative_error(program(x), fused(x)) <= 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_fused_copy_does_not_follow_the_original(method: str) -> None:
    net = trained_net(method)
    x = torch.randn(1, 3, 8, 8)
    fused = fuse(net)
    before = fused(x).clone()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert torch.equal(fused(x), before)
    assert not torch.allclose(net.eval()(x), before, atol=1e-3)


@pytest.mark.parametrize("method", ["aol", "bcop", "bjorck", "oni", "standard"])
def test_small_kernels_become_plain_convolutions(method: str) -> None:
    fused = fuse(trained_net(method))
    assert type(fused.get_submodule("block1.conv1")) is nn.Conv2d
    assert type(fused.get_submodule("linear")) is nn.Linear


def test_a_single_layer_is_fused_itself() -> None:
    layer = AOLConv2d(4, 6, 3)
    assert type(fuse(layer)) is nn.Conv2d


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="got a str"):
        fuse("model")  # pyright: ignore[reportArgumentType]


def test_size_independent_models_need_no_shape() -> None:
    model = nn.Sequential(AOLConv2d(4, 4, 3), MaxMin(), nn.Flatten(), AOLLinear(36, 5))
    x = torch.randn(2, 4, 3, 3)
    assert relative_error(fuse(model)(x), model.eval()(x)) <= 1e-5


def test_size_dependent_models_need_a_shape() -> None:
    model = nn.Sequential(CayleyConv2d(4, 4, 3), MaxMin())
    x = torch.randn(2, 4, 5, 6)
    model.eval()(x)  # a size that was seen by chance is no reason to guess
    with pytest.raises(InvalidInputError, match=r"^0 \(CayleyConv2d\).*input_shape=\(channels, height, width\)"):
        fuse(model)
    assert relative_error(fuse(model, (4, 5, 6))(x), model(x)) <= 1e-5


class TwiceUsed(nn.Module):
    def __init__(self, layer: nn.Module, shrink: bool) -> None:
        super().__init__()
        self.first, self.second, self.shrink = layer, layer, shrink

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y[..., :4, :4] if self.shrink else y)


def test_shared_layers_stay_shared() -> None:
    model = TwiceUsed(CayleyConv2d(2, 2, 3), shrink=False)
    fused = fuse(model, (2, 6, 6))
    assert fused.first is fused.second
    x = torch.randn(1, 2, 6, 6)
    assert relative_error(fused(x), model.eval()(x)) <= 1e-5


def test_one_layer_on_two_sizes_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"several sizes \(4 x 4, 6 x 6\)"):
        fuse(TwiceUsed(CayleyConv2d(2, 2, 3), shrink=True), (2, 6, 6))


def test_no_hooks_are_left() -> None:
    model = TwiceUsed(CayleyConv2d(2, 2, 3), shrink=False)
    fused = fuse(model, (2, 6, 6))
    assert not any(module._forward_pre_hooks for module in [*model.modules(), *fused.modules()])
