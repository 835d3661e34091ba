"""Expensive proofs are announced before they start, once for each model."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from onelip.certification import Certifier, proof_costs
from onelip.certification.proof_costs import layer_proof_cost
from onelip.layers import create_conv, create_linear

MODELS = {
    "matrix": lambda: nn.Linear(6, 4),
    "convolution": lambda: nn.Conv2d(2, 4, 3, padding=1),
    "padded convolution": lambda: nn.Sequential(nn.CircularPad2d(1), nn.Conv2d(2, 4, 3)),
    "frequency layer": lambda: create_conv("cayley", 2, 4, kernel_size=3),
    "residual layer": lambda: create_conv("cpl", 2, 2, kernel_size=3),
    "fused layer": lambda: create_conv("cayley", 2, 4, kernel_size=3).fuse((4, 4)),
    "linear layer": lambda: create_linear("soc", 6, 4),
}


@pytest.mark.parametrize("name", MODELS)
def test_costs_are_said_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = MODELS[name]()
    model = (nn.Sequential(layer, nn.Flatten()) if "conv" in name or "layer" in name else layer).eval()
    shape = (6,) if name in ("matrix", "linear layer") else (2, 4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Certifier(model, shape)
    monkeypatch.setattr(proof_costs, "_SECONDS", 1e-12)
    with pytest.warns(UserWarning, match="minutes") as caught:
        certifier = Certifier(model, shape)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certifier(torch.rand(2, *shape))


def test_costs_grow_with_the_layer() -> None:
    costs = [layer_proof_cost(create_linear("soc", n, n).eval(), (n,)) for n in (8, 32)]
    assert 32 < costs[1].operations / costs[0].operations < 128
    assert layer_proof_cost(nn.ReLU(), (3,)).operations == 0
