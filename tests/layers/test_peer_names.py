"""Names of other packages: every marked one of docs/your_model.md is there, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from onelip import layers, losses
from onelip.layers import AdaptiveOrthoConv2d, BCOPConv2d, LOTConv2d

PAGE = Path(__file__).parents[2] / "docs" / "your_model.md"


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
