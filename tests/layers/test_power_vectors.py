"""The vectors by which CPL and spectral normalisation estimate norms in training: they follow the weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jacobians import circular_norm
from torch import nn

import onelip
from onelip.layers import create_conv, create_conv3d, create_linear
from onelip.models import ConvNet, LiResNet
from onelip.models.residual_weights import ResidualSpectralConv2d

METHODS = ["cpl", "spectral"]
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "zeros": {"padding_mode": "zeros"},
    "1 x 1": {"kernel_size": 1},
    "strided": {"stride": 2},
    "groups": {"groups": 2},
    "even": {"kernel_size": 2},
}


def _random(layer: Any) -> Any:
    """With other weights than those that it started with."""
    with torch.no_grad():
        layer.weight.copy_(torch.randn_like(layer.weight))
    return layer


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_weights_that_come_without_vectors_get_some(method: str, case: str) -> None:
    """Checkpoints from elsewhere: training starts close to evaluation, whatever the vectors were."""
    torch.manual_seed(0)
    make = lambda: create_conv(method, 4, 4, **{"kernel_size": 3, **CASES[case]})  # noqa: E731
    state = _random(make()).state_dict()
    vectors = state.pop("power_vectors")
    layer, x = make(), torch.randn(8, 4, 8, 8)
    layer.load_state_dict(state)
    assert layer.get_buffer("power_vectors").shape == vectors.shape
    assert (layer.train()(x) - layer.eval()(x)).norm() <= 0.05 * x.norm()


def test_a_layer_without_memory_takes_weights_without_vectors() -> None:
    state = _random(create_linear("spectral", 6, 5)).state_dict()
    del state["power_vectors"]
    layer = create_linear("spectral", 6, 5, device="meta")
    layer.load_state_dict(state, assign=True)
    x = torch.randn(8, 6)
    assert (layer.train()(x) - layer.eval()(x)).norm() <= 0.05 * x.norm()


def test_other_keys_are_still_missed() -> None:
    layer = create_linear("spectral", 6, 5)
    with pytest.raises(RuntimeError, match=r"Missing key.*weight"):
        layer.load_state_dict({"bias": torch.zeros(5)})


def test_conversion_brings_the_vectors_along() -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 16))
    model = onelip.convert(plain, "spectral")
    x = torch.randn(4, 3, 4, 4)
    with torch.no_grad():
        trained, evaluated = model.train()(x), model.eval()(x)
    assert (trained - evaluated).norm() <= 0.05 * evaluated.norm()


def test_estimates_are_below_the_norm_and_close_after_a_step() -> None:
    """Evaluation divides by an upper bound, training by a lower one."""
    torch.manual_seed(2)
    layer = _random(create_conv("spectral", 6, 6, 3, dtype=torch.float64))

    truth = circular_norm(layer.weight.detach(), (8, 8))

    def share() -> float:
        """The divisor over the norm."""
        kernel = layer.operator((8, 8)).tensors()["kernel"]
        return float((layer.weight[0, 0, 0, 0] / kernel[0, 0, 0, 0]).detach() / truth)

    found = [share() for _ in range(40)]
    assert max(found) <= 1 + 1e-12
    assert found[-1] >= 1 - 1e-3
    with onelip.exact_transforms():
        assert 1 - 1e-12 <= share() <= 1.016
    layer.eval()
    assert 1 - 1e-12 <= share() <= 1.016


def test_vectors_of_a_last_layer_follow_where_few_outputs_are_used() -> None:
    net = ConvNet("spectral", None, 10, input_size=16, width=4).train()
    before = net.state_dict()["linear.power_vectors"].clone()
    with torch.no_grad():
        net.get_parameter("linear.weight").add_(torch.randn_like(net.get_parameter("linear.weight")))
    net(torch.randn(2, 3, 16, 16))
    assert not torch.equal(net.state_dict()["linear.power_vectors"], before)


@pytest.mark.parametrize("options", [{"dilation": 5}, {"stride": 2}, {"kernel_size": (3, 1, 1)}])
def test_volumes_whose_slices_are_far_apart(options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    layer = _random(create_conv3d("spectral", 3, 3, **{"kernel_size": 3, **options}))
    x = torch.randn(2, 3, 12, 12, 12)
    with torch.no_grad():
        for _ in range(20):
            layer.train()(x)
        assert (layer.train()(x) - layer.eval()(x)).norm() <= 0.1 * x.norm()


def test_residual_weights_are_estimated_as_they_are_constrained() -> None:
    torch.manual_seed(4)
    net = LiResNet("spectral", 8, 10, (3, 16, 16), depth=2, dense=1, dense_width=16)
    layers = [module for module in net.modules() if isinstance(module, ResidualSpectralConv2d)]
    assert layers
    for layer in layers:
        x = torch.randn(2, layer.in_channels, 4, 4)
        assert (layer.train()(x) - layer.eval()(x)).norm() <= 0.03 * x.norm()
