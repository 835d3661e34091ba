"""Weights that are stored orthonormal: what the layer makes of them, and what keeps them so."""

from __future__ import annotations

import copy

import pytest
import torch
from jacobians import distance_from_isometry, jacobian
from torch import Tensor

import onelip
from onelip.layers import BCOPConv2d, StiefelConv2d, StiefelLinear
from onelip.layers.methods.stiefel import OnManifold
from onelip.linalg.near_orthogonal import nearly_polar, retracted
from onelip.linalg.polar import polar_factor
from onelip.optim import retract


def _distance(matrix: Tensor) -> float:
    """Largest entry of A^T A - I, or of A A^T - I for a wide A."""
    gram = matrix.mT @ matrix if matrix.shape[-2] >= matrix.shape[-1] else matrix @ matrix.mT
    return float((gram - torch.eye(gram.shape[-1], dtype=gram.dtype)).abs().max())


@pytest.mark.parametrize("shape", [(6, 6), (9, 4), (4, 9), (3, 5, 2)])
def test_an_orthonormal_matrix_stays_what_it_is(shape: tuple[int, ...]) -> None:
    matrix = polar_factor(torch.randn(shape, dtype=torch.float64))
    torch.testing.assert_close(nearly_polar(matrix), matrix, rtol=0, atol=5e-7)
    torch.testing.assert_close(retracted(matrix), matrix, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 0.3, 1.0, 1.8, 30.0, 1e12])
def test_any_matrix_becomes_a_contraction(scale: float) -> None:
    """A bare cubic step x -> 1.5 x - 0.5 x^3 expands what lies beyond sqrt(3)."""
    for matrix in (torch.randn(8, 5), torch.ones(6, 6), torch.randn(5, 8), torch.eye(7)):
        wide = nearly_polar((scale * matrix).double())
        assert torch.linalg.matrix_norm(wide, 2) <= 1 + 1e-12
        assert torch.linalg.matrix_norm(nearly_polar(scale * matrix), 2) <= 1 + 1e-6
        assert bool(torch.isfinite(wide).all())


def test_the_gradient_at_an_orthonormal_matrix_is_tangent() -> None:
    """For W on the manifold a tangent D has W^T D skew; that of the polar factor is the same projection."""
    matrix = polar_factor(torch.randn(7, 4, dtype=torch.float64)).requires_grad_()
    direction = torch.randn(7, 4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((nearly_polar(matrix) * direction).sum(), matrix)
    product = matrix.detach().mT @ gradient
    torch.testing.assert_close(product, -product.mT, rtol=0, atol=1e-2)  # up to the slack
    inner = matrix.detach().mT @ direction
    tangent = direction - matrix.detach() @ (inner + inner.mT) / 2
    torch.testing.assert_close(gradient, tangent, rtol=0, atol=1e-2)


@pytest.mark.parametrize("step", [1e-3, 0.05, 2.0])
def test_a_retraction_is_the_polar_factor_after_small_and_large_steps(step: float) -> None:
    matrix = polar_factor(torch.randn(12, 8)) + step * torch.randn(12, 8) / 8
    back = retracted(matrix)
    assert _distance(back) <= 2e-3 if step > 1e-2 else _distance(back) <= 1e-6
    assert float((back - polar_factor(matrix)).abs().max()) <= 2e-3


def _trained(layer: OnManifold, images: Tensor, *, steps: int, rate: float, back: bool) -> None:
    optimiser = torch.optim.Adam(layer.parameters(), lr=rate)
    target = torch.randn(layer(images).shape)
    for _ in range(steps):
        optimiser.zero_grad()
        (layer(images) - target).square().mean().backward()
        optimiser.step()
        if back:
            retract(layer)


def test_training_keeps_weights_on_the_manifold_and_the_layer_an_isometry() -> None:
    torch.manual_seed(0)
    layer, images = StiefelConv2d(6, 6, 3), torch.randn(8, 6, 4, 4)
    before = copy.deepcopy(layer.state_dict())
    _trained(layer, images, steps=15, rate=0.02, back=True)
    assert not torch.equal(layer.weight, before["weight"])
    assert all(_distance(matrix.detach()) <= 1e-4 for matrix in layer.matrices())
    assert distance_from_isometry(jacobian(layer.double().eval(), torch.randn(6, 4, 4, dtype=torch.float64))) <= 1e-4


def test_weights_that_drifted_are_certified_as_they_are() -> None:
    """Without retractions the matrices leave the manifold; the constant is proven for what is stored."""
    torch.manual_seed(0)
    layer = StiefelLinear(10, 7)
    _trained(layer, torch.randn(32, 10), steps=20, rate=0.05, back=False)
    assert _distance(layer.weight.detach()) > 0.05
    naive = torch.linalg.matrix_norm(layer.weight.detach(), 2)
    assert naive > 1.05  # what would be certified as 1 if stored weights were trusted
    exact = torch.linalg.matrix_norm(jacobian(layer.double().eval(), torch.randn(10, dtype=torch.float64)), 2)
    assert exact <= onelip.lipschitz_bound(layer, (10,)) <= 1 + 1e-9


def test_it_is_bcop_on_the_manifold() -> None:
    torch.manual_seed(0)
    layer, other = StiefelConv2d(4, 6, 3).double().eval(), BCOPConv2d(4, 6, 3).double().eval()
    other.load_state_dict(layer.state_dict())
    images = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(layer(images), other(images), rtol=0, atol=1e-5)
