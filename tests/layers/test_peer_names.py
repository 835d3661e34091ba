"""Names of other packages: every marked one of docs/coming_from.md is there, and does what it says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import layer_contract as contract
import pytest
import torch
from jacobians import norm_at

from onelip import layers, losses
from onelip.layers import AdaptiveOrthoConv2d, BCOPConv2d, LOTConv2d

PAGE = Path(__file__).parents[2] / "docs" / "coming_from.md"


def test_every_marked_name_exists() -> None:
    marked = re.findall(r"`([\w.]+)(?:\(\))?`†", PAGE.read_text())
    assert len(marked) >= 25
    for name in marked:
        if name.startswith("layer."):
            assert hasattr(layers.LipschitzLayer, name.removeprefix("layer."))
        else:
            assert name in (losses if "Loss" in name else layers).__all__, name


def test_a_layer_by_another_name_is_the_layer_and_exports_by_it() -> None:
    assert AdaptiveOrthoConv2d is BCOPConv2d
    for layer in (AdaptiveOrthoConv2d(4, 8, 3, stride=2), LOTConv2d(4, 8, 3)):
        x = torch.randn(2, 4, 6, 6)
        exported = layer.eval().vanilla_export((6, 6))
        assert not isinstance(exported, layers.LipschitzLayer)
        assert torch.allclose(exported(x), layer(x), atol=1e-5)


FROBENIUS = replace(layers.get_method("spectral"), key="frobenius", conv=layers.FrobeniusConv2d)


@pytest.mark.parametrize("state", contract.STATES)
@pytest.mark.parametrize("case", [*contract.CONVS, *contract.GEOMETRIES])
def test_frobenius_convolutions_keep_the_contract(case: str, state: str) -> None:
    layer = contract.in_state(FROBENIUS, case, state, torch.float32)
    contract.check_evaluation_is_finite(layer, contract.samples(case, 2, torch.float32))
    contract.check_bound(FROBENIUS, layer, contract.input_shape(case))


def test_the_divisor_of_a_frobenius_convolution_is_its_formula() -> None:
    layer = layers.FrobeniusConv2d(2, 3, 3, dtype=torch.float64).eval()
    weight = torch.randn(3, 2, 3, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
    divisor = sum(float(weight[o, i].abs().sum()) ** 2 for o in range(3) for i in range(2)) ** 0.5
    kernel = layer.transform().tensors()["kernel"]
    assert torch.allclose(kernel.detach(), weight / divisor, rtol=1e-12)
    tight = torch.zeros(3, 2, 3, 3, dtype=torch.float64)
    tight[1, 0] = 1.0  # one row and column, taps of one sign: the frequency 0 reaches the bound
    with torch.no_grad():
        layer.weight.copy_(tight)
    assert norm_at(layer.train().eval(), torch.randn(2, 4, 5, dtype=torch.float64)) == pytest.approx(1.0, rel=1e-12)
