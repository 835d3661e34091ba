"""Wide layers on accelerators make their frequency matrices anew: the same numbers, whatever is done at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from onelip.layers import create_conv
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.frequency_conv import Remade
from onelip.linalg.devices import pretend_device

FREQUENCY_METHODS = ["lot", "soc", "cayley", "cholesky", "bro", "sandwich"]


def _layer(method: str, **options: Any) -> LipschitzConv2d:
    torch.manual_seed(0)
    layer = create_conv(method, 4, 4, 3, dtype=torch.float64, **options)
    layer.train()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return layer


def _images() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, 4, 6, 5, dtype=torch.float64, generator=generator).requires_grad_()


def _pass(layer: LipschitzConv2d, x: Tensor) -> list[Tensor]:
    y = layer(x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y, *torch.autograd.grad((y * weights).sum(), [x, *(p for p in layer.parameters() if p.requires_grad)])]


@pytest.mark.parametrize("method", FREQUENCY_METHODS)
@pytest.mark.parametrize("options", [{}, {"padding_mode": "zeros"}, {"groups": 2}, {"lipschitz": 0.5}], ids=str)
@pytest.mark.parametrize("matrices_at_once", [1, 4, 100])
def test_remade_layers_are_those_that_keep_their_matrices(
    monkeypatch: pytest.MonkeyPatch, method: str, options: dict[str, Any], matrices_at_once: int
) -> None:
    if method == "soc" and "padding_mode" in options:
        pytest.skip("a series of convolutions, which has no frequencies")
    layer, x = _layer(method, **options), _images()
    channels = layer.core_out * layer.core_in
    with pretend_device("accelerator"):
        expected = _pass(layer, x)
        monkeypatch.setattr("onelip.layers.methods.sandwich.MOST_BYTES_KEPT", 16 * channels * matrices_at_once)
        monkeypatch.setattr("onelip.layers.frequency_conv.is_wide", lambda *_: True)
        assert isinstance(_core(layer), Remade)
        actual = _pass(layer, x)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


def _core(layer: LipschitzConv2d) -> object:
    operator: Any = layer.transform((6, 5))
    while hasattr(operator, "operator"):  # of groups, or behind a factor
        operator = operator.operator
    return operator


@pytest.mark.parametrize("method", FREQUENCY_METHODS)
def test_the_backward_pass_is_that_of_the_forward_pass(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """It comes outside of the context that chose the forms, when the layer evaluates, and can be differentiated."""
    layer, x = _layer(method), _images()
    with pretend_device("accelerator"):
        expected = _pass(layer, x)[1:]
        monkeypatch.setattr("onelip.layers.frequency_conv.is_wide", lambda *_: True)
        y = layer(x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    leaves = [x, *(p for p in layer.parameters() if p.requires_grad)]
    layer.eval()
    actual = torch.autograd.grad((y * weights).sum(), leaves, retain_graph=True)
    torch.testing.assert_close(list(actual), expected, rtol=1e-9, atol=1e-10)
    again = torch.autograd.grad((y * weights).sum(), leaves, create_graph=True)
    torch.testing.assert_close(list(again), expected, rtol=1e-9, atol=1e-10)
    assert again[1].requires_grad


def test_wide_layers_keep_no_matrices() -> None:
    with torch.device("meta"), pretend_device("accelerator"):
        wide, narrow = create_conv("lot", 128, 128, 3).train(), create_conv("lot", 16, 16, 3).train()
        assert isinstance(wide.transform((16, 16)), Remade)
        assert not isinstance(narrow.transform((16, 16)), Remade)
    assert not isinstance(create_conv("lot", 128, 128, 3).train().transform((16, 16)), Remade)
