"""Activations with pieces: definition, slopes, bounds against brute force, rounding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import FullSort, LipschitzPReLU, NActivation
from onelip.proofs.layer_bound import FLOAT32


def n_activation(corners: list[tuple[float, float]]) -> NActivation:
    layer = NActivation(len(corners))
    with torch.no_grad():
        layer.corners.copy_(torch.tensor(corners).mT)
    return layer


def prelu(slope: float) -> LipschitzPReLU:
    layer = LipschitzPReLU()
    nn.init.constant_(layer.weight, slope)
    return layer


LAYERS = {
    "zigzags": lambda: n_activation([(-1.0, 0.5), (2.0, 3.0), (-3.0, -2.0), (1.0, -1.0)]),
    "start": lambda: NActivation(4),
    "prelu": lambda: prelu(-0.7),
    "prelu beyond its range": lambda: prelu(5.0),
    "full sort": FullSort,
}


@pytest.mark.parametrize("name", LAYERS)
def test_no_two_points_move_apart_and_zero_and_rounding_stay_within_the_bound(name: str) -> None:
    layer = LAYERS[name]()
    bound = layer.bound((4, 5))
    assert bound.rounding is not None
    x, y = 3 * torch.randn(2, 500, 4, 5)
    computed = layer(x).detach()
    exact = layer.double()
    with torch.no_grad():
        fx, fy = exact(x.double()), exact(y.double())
    ratio = (fx - fy).flatten(1).norm(dim=1) / (x.double() - y.double()).flatten(1).norm(dim=1)
    assert float(ratio.max()) <= bound.lipschitz * (1 + 1e-12)
    assert bound.lipschitz == 1
    assert float(exact(torch.zeros(1, 4, 5, dtype=torch.float64)).detach().norm()) <= bound.offset
    allowed = bound.rounding(FLOAT32)
    norms = x.double().flatten(1).norm(dim=1)
    assert bool(((computed.double() - fx).flatten(1).norm(dim=1) <= allowed.slope * norms + allowed.constant).all())


def test_the_zigzag_at_its_pieces_and_corners() -> None:
    layer = n_activation([(1.0, -1.0)])  # the order of the corners does not matter
    x = torch.tensor([[-3.0], [-1.0], [0.5], [1.0], [3.0]])
    assert layer(x).flatten().tolist() == [-1.0, 1.0, -0.5, -1.0, 1.0]


def test_starts() -> None:
    x = torch.randn(7, 4, 3)
    assert torch.equal(NActivation(4, init="identity")(x), x)
    assert torch.equal(NActivation(4, init="abs")(x), x.abs())
    mixed = NActivation(4)(x)
    assert torch.equal(mixed[:, ::2], x[:, ::2].abs())
    assert torch.equal(mixed[:, 1::2], x[:, 1::2])


def test_gradients_reach_corners_and_slopes() -> None:
    corners = n_activation([(-1.0, 0.5), (2.0, 3.0)]).double()
    assert torch.autograd.gradcheck(corners, (torch.randn(6, 2, dtype=torch.float64, requires_grad=True),))
    layer = n_activation([(0.0, 1.0)])
    layer(torch.tensor([[2.0]])).sum().backward()
    assert layer.corners.grad is not None
    assert layer.corners.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: NActivation(0), "channels"),
        (lambda: NActivation(2, init="zero"), "abs-identity"),
        (lambda: NActivation(2)(torch.zeros(1, 3)), "3 channels"),
        (lambda: LipschitzPReLU(init=2.0), "init"),
    ],
)
def test_bad_arguments_are_named(make, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        make()
