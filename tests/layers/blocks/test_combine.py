"""Branches that come together: constants against exact Jacobians, gradients, shapes."""

from __future__ import annotations

import pytest
import torch
from jacobians import norm_at
from torch import nn

import onelip
from onelip.errors import InvalidInputError
from onelip.layers import (
    AOLConv2d,
    AOLLinear,
    ConvexSum,
    FlipAverage,
    LipschitzConcat,
    LipschitzResidual,
    MaxMin,
    UnitRowsLinear,
)


def branch() -> nn.Module:
    return nn.Sequential(AOLLinear(6, 6), MaxMin(), AOLLinear(6, 6))


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9])
def test_a_residual_is_as_lipschitz_as_its_branch(weight: float) -> None:
    layer = LipschitzResidual(branch(), weight).double().eval()
    for x in torch.randn(5, 6, dtype=torch.float64):
        assert norm_at(layer, x) <= 1 + 1e-9
        assert norm_at(lambda v: v + layer.branch(v), x) > 1  # pyright: ignore[reportArgumentType] - the plain sum


def test_the_share_is_learned_and_stays_in_its_interval() -> None:
    layer = ConvexSum(0.3)
    x, y = torch.randn(2, 4, 3)
    assert torch.allclose(layer(x, y), 0.3 * x + 0.7 * y)
    nn.init.constant_(layer.logit, 50.0)
    assert torch.allclose(layer(x, y), x)
    layer(x, y).sum().backward()
    assert layer.logit.grad is not None
    fixed = ConvexSum(1.0, learnable=False)
    assert not list(fixed.parameters())
    assert torch.equal(fixed(x, y), x)


def test_concatenated_branches_have_constant_1() -> None:
    layer = LipschitzConcat(nn.Identity(), nn.Identity(), branch()).double().eval()
    x = torch.randn(6, dtype=torch.float64)
    assert layer(x[None]).shape == (1, 18)
    assert (2 / 3) ** 0.5 <= norm_at(layer, x) <= 1 + 1e-9


def test_unit_rows() -> None:
    layer = UnitRowsLinear(6, 3)
    with torch.no_grad():
        layer.weight.mul_(torch.tensor([[1e-3], [1.0], [50.0]]))
    scores = layer(torch.eye(6)) - layer.bias
    assert torch.allclose(scores.norm(dim=0), torch.ones(3))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: ConvexSum(1.0), r"\(0, 1\)"),
        (lambda: ConvexSum(1.5, learnable=False), r"\[0, 1\]"),
        (lambda: ConvexSum()(torch.zeros(2, 3), torch.zeros(2, 1)), r"\(2, 1\)"),
        (LipschitzConcat, "branch"),
        (lambda: UnitRowsLinear(0, 3), "in_features"),
    ],
)
def test_bad_arguments_are_named(make, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        make()


def test_an_average_over_mirror_images_is_certified_with_the_constant_of_the_network() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(AOLConv2d(2, 4, 3), MaxMin(), nn.Flatten(), AOLLinear(64, 3)).double().eval()
    average = FlipAverage(network).eval()
    images = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(average(images), average(images.flip(-1)))
    bound = onelip.lipschitz_bound(average, (2, 4, 4))
    assert norm_at(average, images[0]) <= bound <= onelip.lipschitz_bound(network, (2, 4, 4)) * (1 + 1e-8)
    assert bool((onelip.certify(average, images).radii >= 0).all())
