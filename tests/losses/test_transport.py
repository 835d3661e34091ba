"""Transport losses: known distances, and the definition written out."""

from __future__ import annotations

import pytest
import torch

from onelip.errors import InvalidInputError
from onelip.layers import AOLLinear, GroupSort
from onelip.losses import HKR, KR, HKRMulticlass


def test_kr_is_minus_the_difference_of_means_for_every_kind_of_labels() -> None:
    values = torch.tensor([3.0, 1.0, -1.0, 0.0])
    for labels in (torch.tensor([1, 1, 0, 0]), torch.tensor([1, 1, -1, -1]), torch.tensor([True, True, False, False])):
        assert float(KR()(values, labels)) == -2.5
        assert float(KR()(values[:, None], labels)) == -2.5


def test_a_trained_critic_finds_the_distance_of_two_points() -> None:
    """Point masses at distance 5: no 1-Lipschitz critic exceeds it, and a linear one reaches it."""
    first, second = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]])
    critic = torch.nn.Sequential(AOLLinear(2, 8), GroupSort(2), AOLLinear(8, 1))
    points, labels = torch.cat([first, second]), torch.tensor([1, 0])
    optimiser = torch.optim.Adam(critic.parameters(), 0.05)
    for _ in range(150):
        optimiser.zero_grad()
        KR()(critic(points), labels).backward()
        optimiser.step()
    distance = -float(KR()(critic.eval()(points), labels).detach())
    assert 4.9 < distance <= 5.0 + 1e-5


def test_hkr_is_its_definition() -> None:
    values, labels = torch.tensor([2.0, -0.5, 0.25]), torch.tensor([1, 1, 0])
    hinge = (0.0 + 1.5 + 1.25) / 3
    transport = 0.75 - 0.25
    assert float(HKR(alpha=0.8)(values, labels)) == pytest.approx(0.8 * hinge - 0.2 * transport, rel=1e-6)


def test_hkr_of_classes_is_the_mean_over_one_against_the_rest() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    labels = torch.arange(12) % 3
    each = [HKR(0.7, 0.5)(scores[:, k], labels == k) for k in range(3)]
    assert float(HKRMulticlass(0.7, 0.5)(scores, labels)) == pytest.approx(float(sum(each)) / 3, rel=1e-12)


def test_a_class_that_is_missing_adds_no_transport() -> None:
    scores = torch.zeros(2, 3, requires_grad=True)
    loss = HKRMulticlass(alpha=0.0)(scores, torch.tensor([0, 1]))
    loss.backward()
    assert scores.grad is not None
    assert bool((scores.grad[:, 2] == 0).all())


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InvalidInputError, match=r"HKR: alpha=2.*\[0, 1\]"):
        HKR(alpha=2)
    with pytest.raises(InvalidInputError, match=r"\(batch,\)"):
        KR()(torch.zeros(2, 3), torch.zeros(2))
