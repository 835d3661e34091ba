"""Optimisers on the manifold, and Lookahead."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import StiefelConv2d, StiefelLinear
from onelip.optim import Lookahead, ManifoldAdam, retract, rotation_series


def _skew(size: int, angle: float) -> torch.Tensor:
    raw = torch.randn(size, size, dtype=torch.float64)
    skew = raw - raw.mT
    return skew * angle / torch.linalg.matrix_norm(skew, 2)


@pytest.mark.parametrize(("degree", "largest"), [(3, 3**0.5), (4, 8**0.5)])
def test_the_truncated_exponential_contracts_up_to_its_angle(degree: int, largest: float) -> None:
    torch.manual_seed(0)
    for angle in (0.01, 0.5, 0.999 * largest):
        skew = _skew(7, angle)
        assert torch.linalg.matrix_norm(rotation_series(skew, degree), 2) <= 1 + 1e-12
    small = _skew(7, 0.1)
    error = (rotation_series(small, degree) - torch.linalg.matrix_exp(small)).abs().max()
    assert error <= 0.1 ** (degree + 1)
    # What makes degree 2 useless: it expands for every angle.
    assert torch.linalg.matrix_norm(torch.eye(7) + small + small @ small / 2, 2) > 1 + 1e-6


def test_degree_two_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="use 3 or 4"):
        ManifoldAdam(StiefelLinear(4, 4), degree=2)


def test_rotations_stay_on_the_manifold_and_reduce_the_loss() -> None:
    torch.manual_seed(0)
    layer = StiefelLinear(8, 8)
    goal = torch.linalg.qr(torch.randn(8, 8)).Q
    goal = goal * torch.linalg.det(goal).sign() * torch.linalg.det(layer.weight.detach()).sign()
    images = torch.randn(64, 8)
    optimiser = ManifoldAdam(layer, lr=0.03)
    losses = []
    for _ in range(80):
        loss = (layer(images) - images @ goal.mT).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    gram = layer.weight.detach().mT @ layer.weight.detach()
    assert float((gram - torch.eye(8)).abs().max()) <= 1e-2  # drift of rotations alone, without a retraction
    assert torch.linalg.matrix_norm(layer.weight.detach(), 2) <= 1 + 1e-5
    assert losses[-1] <= 0.3 * losses[0]
    retract(layer)
    gram = layer.weight.detach().mT @ layer.weight.detach()
    assert float((gram - torch.eye(8)).abs().max()) <= 1e-5


def test_a_huge_rate_does_not_expand() -> None:
    torch.manual_seed(0)
    layer = StiefelLinear(6, 6)
    optimiser = ManifoldAdam(layer, lr=100.0)
    layer(torch.randn(4, 6)).square().sum().mul(torch.rand(())).backward()
    layer.weight.grad = torch.randn(6, 6)
    optimiser.step()
    assert torch.linalg.matrix_norm(layer.weight.detach(), 2) <= 1 + 1e-5


def test_other_parameters_follow_adam() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(StiefelConv2d(3, 5, 1), nn.Flatten(), nn.Linear(20, 2))
    twin = nn.Sequential(StiefelConv2d(3, 5, 1), nn.Flatten(), nn.Linear(20, 2))
    twin.load_state_dict(model.state_dict())
    images = torch.randn(4, 3, 2, 2)
    for net, optimiser in (
        (model, ManifoldAdam(model, lr=0.01, weight_decay=0.1)),
        (twin, torch.optim.Adam(twin.parameters(), lr=0.01, weight_decay=0.1)),
    ):
        for _ in range(3):
            optimiser.zero_grad()
            net(images).square().sum().backward()
            optimiser.step()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_lookahead_is_the_formula_and_continues() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    ahead = Lookahead([parameter], every=2, share=0.5)
    for value in (1.0, 2.0, 3.0):
        parameter.data.fill_(value)
        ahead.update()
    assert parameter.tolist() == [3.0, 3.0]
    again = Lookahead([parameter], every=2, share=0.5)
    again.load_state_dict(ahead.state_dict())
    again.update()  # the slow weight is 1 after two steps; now 1 + (3 - 1) / 2
    assert parameter.tolist() == [2.0, 2.0]
    with pytest.raises(InvalidInputError, match="every=0"):
        Lookahead([parameter], every=0)
