"""Certificates of trained networks of every method against dense search and against gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification import certify, lipschitz_bound
from onelip.layers import list_methods
from onelip.models import ConvNet

CLASSES, SIDE = 4, 8


def patterns(count: int) -> tuple[Tensor, Tensor]:
    """Noisy images of one of four patterns."""
    generator = torch.Generator().manual_seed(1)
    prototypes = torch.randn(CLASSES, 3, SIDE, SIDE, generator=generator) / 8
    labels = torch.arange(count) % CLASSES
    return prototypes[labels] + torch.randn(count, 3, SIDE, SIDE, generator=generator) / 16, labels


def trained(method: str) -> ConvNet:
    model = ConvNet(method, None, CLASSES, input_size=SIDE, width=4)
    x, labels = patterns(128)
    rate = 0.001 if method == "sandwich" else 0.01  # at 0.01 its activations die, and all scores are equal
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(15):
        optimiser.zero_grad()
        F.cross_entropy(4 * model(x), labels).backward()
        optimiser.step()
    return model.eval()


@torch.no_grad()
def random_search(model: nn.Module, x: Tensor, radius: float, tries: int) -> Tensor:
    """Predictions at points of the sphere: random ones, and along differences of inputs."""
    directions = torch.randn(tries, *x.shape)
    directions /= torch.linalg.vector_norm(directions.flatten(1), dim=1)[:, None, None, None]
    return model(x + radius * (1 - 1e-6) * directions).argmax(1)


def follow_gradient(model: nn.Module, x: Tensor, labels: Tensor, radii: Tensor, steps: int = 15) -> Tensor:
    """Projected gradient ascent of the margin's loss inside each ball; returns the points reached."""
    radii = radii.to(x.dtype)[:, None, None, None] * (1 - 1e-6)
    moved = x.clone()
    for _ in range(steps):
        moved.requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(4 * model(moved), labels), moved)
        norm = torch.linalg.vector_norm(gradient.flatten(1), dim=1)[:, None, None, None]
        offset = moved.detach() + radii / 3 * gradient / norm.clamp(min=1e-30) - x
        length = torch.linalg.vector_norm(offset.flatten(1), dim=1)[:, None, None, None]
        moved = (x + offset * (radii / length.clamp(min=1e-30)).clamp(max=1)).detach()
    return moved


@pytest.mark.parametrize("method", [method.key for method in list_methods()])
def test_no_search_succeeds_inside_a_radius(method: str) -> None:
    model = trained(method)
    x, labels = patterns(24)
    certificate = certify(model, x, labels)
    assert (certificate.radii > 0).any()
    if method != "standard":
        assert lipschitz_bound(model) <= 1 + 1e-4
    for index in range(8):
        found = random_search(model, x[index], float(certificate.radii[index]), tries=100)
        assert (found == certificate.predictions[index]).all()
    reached = follow_gradient(model, x, certificate.predictions, certificate.radii)
    with torch.no_grad():
        after = model(reached).argmax(1)
    assert (after == certificate.predictions)[certificate.radii > 0].all()


@pytest.mark.parametrize("method", ["bcop", "cayley", "sll"])
def test_the_search_succeeds_outside(method: str) -> None:
    """Far beyond the radius the same gradient ascent finds other predictions: it would find wrong certificates."""
    model = trained(method)
    x, labels = patterns(24)
    certificate = certify(model, x, labels)
    reached = follow_gradient(model, x, certificate.predictions, 20 * certificate.radii + 1)
    with torch.no_grad():
        assert (model(reached).argmax(1) != certificate.predictions).float().mean() > 0.3


def test_float32_radii_are_smaller_but_of_use() -> None:
    model = trained("bcop")
    x, labels = patterns(64)
    double, single = certify(model, x, labels), certify(model, x, labels, arithmetic="float32")
    assert (single.radii <= double.radii).all()
    assert float((single.radii > 0).double().mean()) > 0.5 * float((double.radii > 0).double().mean())
