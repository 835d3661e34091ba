"""Transport losses: known distances, and the definition written out."""

from __future__ import annotations

import math

import pytest
import torch

from onelip.errors import InvalidInputError
from onelip.layers import AOLLinear, GroupSort
from onelip.losses import HKR, KR, HKRMulticlass, LseHKRMulticlass, SoftHKRMulticlass


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


def batch(classes: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    scores = 2 * torch.randn(7, classes, generator=generator, dtype=torch.float64)
    return scores, torch.randint(classes, (7,), generator=generator)


def test_soft_hkr_is_its_definition() -> None:
    scores, labels = batch()
    alpha, margin, temperature = 0.7, 0.5, 1.5
    size = sum(abs(value) for row in scores.tolist() for value in row) / scores.numel()
    assert size > margin  # so that the weights are made softer
    losses = []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        others = [value for i, value in enumerate(row) if i != label]
        raw = [math.exp(temperature * margin / size * value) for value in others]
        weights = [value / sum(raw) for value in raw]
        hinges = sum(w * max(0.0, margin + value) for w, value in zip(weights, others, strict=True))
        lead = row[label] - sum(w * value for w, value in zip(weights, others, strict=True))
        losses.append(alpha * (max(0.0, margin - row[label]) + hinges) - (1 - alpha) * lead)
    loss = SoftHKRMulticlass(alpha, margin, temperature)
    assert float(loss(scores, labels)) == pytest.approx(sum(losses) / len(losses), rel=1e-12)


def test_lse_hkr_is_its_definition_and_the_rival_is_nearly_the_largest() -> None:
    scores, labels = batch()
    alpha, margin, slack = 0.7, 0.5, 0.4
    sharpness = math.log(4) / (slack * margin)
    losses = []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        others = [value for i, value in enumerate(row) if i != label]
        rival = math.log(sum(math.exp(sharpness * value) for value in others)) / sharpness
        assert max(others) <= rival <= max(others) + slack * margin + 1e-12
        hinge = max(0.0, margin - row[label]) + max(0.0, margin + rival)
        losses.append(alpha * hinge - (1 - alpha) * (row[label] - rival))
    loss = LseHKRMulticlass(alpha, margin, slack)
    assert float(loss(scores, labels)) == pytest.approx(sum(losses) / len(losses), rel=1e-12)


@pytest.mark.parametrize("loss", [SoftHKRMulticlass(0.6), LseHKRMulticlass(0.6)])
def test_with_two_classes_the_rival_is_the_other_score(loss: torch.nn.Module) -> None:
    scores, labels = torch.tensor([[0.25, -2.0], [1.5, 0.5]], dtype=torch.float64), torch.tensor([0, 1])
    hinge = ((0.75 + 0.0) + (0.5 + 2.5)) / 2
    lead = (2.25 - 1.0) / 2
    assert float(loss(scores, labels)) == pytest.approx(0.6 * hinge - 0.4 * lead, rel=1e-12)


@pytest.mark.parametrize("classes", [2, 5])
def test_gradients_of_losses_against_rivals(classes: int) -> None:
    scores, labels = batch(classes)
    # What the mean score scales is held fixed by the definition: small scores leave it at 1.
    for loss, values in ((SoftHKRMulticlass(0.6, 5.0), scores), (LseHKRMulticlass(0.6), scores)):
        assert torch.autograd.gradcheck(loss, (values.clone().requires_grad_(), labels))
    huge = (1e30 * scores.float()).requires_grad_()
    for loss in (SoftHKRMulticlass(), LseHKRMulticlass()):
        loss(huge, labels).backward()
        assert huge.grad is not None
        assert bool(huge.grad.isfinite().all())


@pytest.mark.parametrize("make", [HKRMulticlass, SoftHKRMulticlass, LseHKRMulticlass])
def test_a_small_network_learns_to_separate_classes(make: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    centres = 4 * torch.eye(4)
    labels = torch.arange(4).repeat(8)
    points = centres[labels] + 0.1 * torch.randn(32, 4)
    network, loss = torch.nn.Sequential(AOLLinear(4, 8), GroupSort(2), AOLLinear(8, 4)), make()
    optimiser = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(100):
        optimiser.zero_grad()
        loss(network(points), labels).backward()
        optimiser.step()
    assert bool((network.eval()(points).argmax(1) == labels).all())


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InvalidInputError, match="SoftHKRMulticlass: temperature=0"):
        SoftHKRMulticlass(temperature=0)
    with pytest.raises(InvalidInputError, match="LseHKRMulticlass: slack='a'"):
        LseHKRMulticlass(slack="a")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInputError, match="HKR: alpha=None"):
        HKR(alpha=None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInputError, match=r"HKR: alpha=2.*\[0, 1\]"):
        HKR(alpha=2)
    with pytest.raises(InvalidInputError, match=r"\(batch,\)"):
        KR()(torch.zeros(2, 3), torch.zeros(2))
