"""Every part and loss that networks need: there, proven with rounding, kept by every way of using it, documented."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from layer_parts import PARTS
from torch import nn

import onelip
from onelip import layers, losses
from onelip.certification import Certifier

PAGE = (Path(__file__).parents[2] / "docs" / "your_model.md").read_text()
SHAPE = (4, 4, 4)


LOSSES = (
    *("OffsetCrossEntropy", "MultiMargin", "EMMA", "LogitAnnealing", "CertificateRegularised"),
    *("HKR", "HKRMulticlass", "KR", "SoftHKRMulticlass", "LseHKRMulticlass"),
)


def trained(part: nn.Module) -> nn.Module:
    """Running statistics and parameters away from their start."""
    part.train()(3 * torch.randn(8, *SHAPE) + 1)
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return part.eval()


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_proven_in_float32_and_documented(name: str) -> None:
    torch.manual_seed(0)
    assert hasattr(layers, name)
    assert f"`{name}" in PAGE
    part = trained(PARTS[name]())
    limit = 8**0.5 if name == "UnitRowsLinear" else 1.0  # its scores are 1-Lipschitz one by one
    assert onelip.lipschitz_bound(part, SHAPE) <= limit * (1 + 1e-6)
    model = nn.Sequential(part, nn.Flatten())
    certifier = Certifier(model, SHAPE, arithmetic="float32")
    assert not certifier.assumptions  # its rounding is known
    x = 3 * torch.randn(8, *SHAPE)
    certificate = certifier(x)
    step = torch.randn(8, *SHAPE)
    step *= (0.999 * certificate.radii / step.flatten(1).norm(dim=1)).float().reshape(-1, 1, 1, 1)
    assert torch.equal(model(x + step).argmax(1)[certificate.radii > 0], certificate.predictions[certificate.radii > 0])


@pytest.mark.parametrize("name", PARTS)
def test_a_part_copies_saves_compiles_to_a_graph_and_learns(name: str) -> None:
    torch.manual_seed(0)
    part, x = trained(PARTS[name]()), torch.randn(2, *SHAPE)
    twin = PARTS[name]().eval()
    twin.load_state_dict(part.state_dict())
    with torch.no_grad():
        expected = part(x)
        assert torch.equal(twin(x), expected)
        assert torch.equal(copy.deepcopy(part)(x), expected)
        assert torch.allclose(torch.export.export(part, (x,)).module()(x), expected, atol=1e-6)
    parameters = list(part.parameters())
    x.requires_grad_()
    gradients = torch.autograd.grad(part.train()(x).square().sum(), [x, *parameters])
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert float(gradients[0].norm()) > 0


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_there_and_documented(name: str) -> None:
    assert callable(getattr(losses, name))
    assert f"`{name}`" in PAGE
