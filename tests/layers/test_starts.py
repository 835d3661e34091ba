"""The starts of CPL, SLL and Sandwich: isometries whose gradients reach all layers.

In training mode, where CPL's norm is that of the power iteration: the Gram bound of evaluation is above the norm,
most of all for an orthogonal W, and shrinks the branch a little.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onelip.layers import CPLConv2d, CPLLinear, MaxMin, SandwichLinear, SLLConv2d, SLLLinear
from onelip.losses import OffsetCrossEntropy
from onelip.models import ConvNet

CONVS = [CPLConv2d, SLLConv2d]
LINEARS = [CPLLinear, SLLLinear]


def singular_values(layer: torch.nn.Module, x: Tensor) -> Tensor:
    """Of the Jacobian at one input, in float64."""
    jacobian = torch.autograd.functional.jacobian(layer, x)
    assert isinstance(jacobian, Tensor)
    return torch.linalg.svdvals(jacobian.reshape(x.numel(), x.numel()))


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("channels", [1, 4, 5])
@pytest.mark.parametrize("kernel", [1, 3])
def test_a_convolution_starts_as_an_isometry(conv: type[CPLConv2d], channels: int, kernel: int) -> None:
    layer = conv(channels, channels, kernel, dtype=torch.float64)
    values = singular_values(layer, torch.randn(1, channels, 4, 4, dtype=torch.float64))
    assert torch.allclose(values, torch.ones_like(values), atol=1e-5)


@pytest.mark.parametrize("linear", LINEARS)
def test_a_linear_layer_starts_as_an_isometry(linear: type[CPLLinear]) -> None:
    layer = linear(7, 7, dtype=torch.float64)
    values = singular_values(layer, torch.randn(7, dtype=torch.float64))
    assert torch.allclose(values, torch.ones_like(values), atol=1e-5)


@pytest.mark.parametrize("conv", CONVS)
def test_the_published_start_can_be_chosen_and_contracts(conv: type[CPLConv2d]) -> None:
    torch.manual_seed(0)
    layer = conv(4, 4, 3, init="xavier", dtype=torch.float64).eval()
    assert singular_values(layer, torch.randn(1, 4, 4, 4, dtype=torch.float64)).mean() < 0.95


@pytest.mark.parametrize("conv", CONVS)
def test_maxmin_undoes_the_start(conv: type[CPLConv2d]) -> None:
    """On sorted pairs with positive sums, layer and MaxMin are the identity together, but the layer alone is not."""
    layer, activation = conv(6, 6, 3), MaxMin()
    x = activation(torch.rand(2, 6, 4, 4))
    assert not torch.allclose(layer(x), x, atol=1e-2)
    assert torch.allclose(activation(layer(x)), x, atol=1e-5)


def gradient_norms(method: str, init: str) -> list[float]:
    """Of the weights, from the first layer to the last, in a network of 12 layers."""
    torch.manual_seed(0)
    model = ConvNet(method, None, 4, input_size=8, width=8, init=init)
    x, labels = torch.rand(16, 3, 8, 8) - 0.5, torch.arange(16) % 4
    OffsetCrossEntropy()(model(x), labels).backward()
    return [float(p.grad.norm()) for n, p in model.named_parameters() if n.endswith("weight") and p.grad is not None]


@pytest.mark.parametrize("method", ["cpl", "sll", "sandwich"])
def test_gradients_reach_all_layers(method: str) -> None:
    norms = gradient_norms(method, "auto")
    assert min(norms) > 1e-2 * max(norms) > 0


@pytest.mark.parametrize("method", ["cpl", "sll"])
def test_the_first_layer_gets_more_than_with_the_published_start(method: str) -> None:
    assert gradient_norms(method, "auto")[0] > 2 * gradient_norms(method, "xavier")[0]


def test_the_bias_of_sandwich_layers_does_not_add_up() -> None:
    """26 layers, as many as the paper's network has, must not shift scores by more than the margin asked for."""
    x = torch.rand(4, 8)
    y = x
    for _ in range(26):
        y = SandwichLinear(8, 8)(y)
    assert float((y - x).detach().mean()) < 0.4
