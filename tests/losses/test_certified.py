"""EMMA, logit annealing and certificate regularisation against their definitions, written out in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from onelip.errors import InvalidInputError
from onelip.losses import EMMA, CertificateRegularised, LogitAnnealing

SCORES = torch.tensor([[2.0, 0.5, -1.0], [0.1, 0.2, 0.3], [-3.0, 4.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 0])


def log_sum_exp(values: list[float]) -> float:
    return math.log(sum(math.exp(value) for value in values))


def emma(scores: list[float], label: int, radius: float, constants: list[float], temperature: float) -> float:
    charged = []
    for i, score in enumerate(scores):
        lead, full = score - scores[label], radius * constants[i]
        charged.append(0.0 if i == label else lead + full * min(1.0, max(0.01, -lead / full)))
    return temperature * log_sum_exp([c / temperature for c in charged])


@pytest.mark.parametrize(("progress", "share"), [(1.0, 1.0), (0.25, 0.5), (0.75, 1.0)])
def test_emma_is_its_definition(progress: float, share: float) -> None:
    loss = EMMA(radius=0.5, temperature=0.25)
    loss.progress = progress
    constants = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]], dtype=torch.float64)
    for pairs, given in ((torch.full((3, 3), math.sqrt(2)), None), (constants, constants)):
        rows = zip(SCORES.tolist(), LABELS.tolist(), strict=True)
        expected = [emma(row, y, 0.5 * share, pairs[y].tolist(), 0.25) for row, y in rows]
        assert float(loss(SCORES, LABELS, given)) == pytest.approx(sum(expected) / 4, rel=1e-6)


def test_emma_at_progress_zero_is_cross_entropy_and_finite() -> None:
    loss = EMMA(temperature=1.0)
    loss.progress = 0.0
    scores = SCORES.clone().requires_grad_()
    value = loss(scores, LABELS)
    value.backward()
    assert float(value.detach()) == pytest.approx(float(torch.nn.functional.cross_entropy(SCORES, LABELS)), rel=1e-12)
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())


def test_logit_annealing_is_its_definition_and_has_gradients() -> None:
    expected = 0.0
    for row, y in zip(SCORES.tolist(), LABELS.tolist(), strict=True):
        shifted = [(s - (2.0 if i == y else 0.0)) / 0.75 for i, s in enumerate(row)]
        p = math.exp(shifted[y] - log_sum_exp(shifted))
        expected += -0.75 * (1 - p) ** 5 * math.log(p) / 4
    assert float(LogitAnnealing()(SCORES, LABELS)) == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(LogitAnnealing(), (SCORES.clone().requires_grad_(), LABELS))


def test_logit_annealing_of_a_huge_margin_is_zero_with_finite_gradient() -> None:
    scores = torch.tensor([[1e3, 0.0]], requires_grad=True)
    LogitAnnealing()(scores, torch.tensor([0])).backward()
    assert scores.grad is not None
    assert scores.grad.abs().max() == 0


def test_certificate_regularisation_is_its_definition() -> None:
    plain = torch.nn.functional.cross_entropy(SCORES, LABELS)
    radius = torch.tensor([1.5, 0.0, 0.0, 0.0], dtype=torch.float64).mean() / math.sqrt(2)
    loss = CertificateRegularised(gamma=0.5)
    assert float(loss(SCORES, LABELS)) == pytest.approx(float(plain - 0.5 * radius), rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "options", "name"),
    [
        (EMMA, {"radius": 0.0}, "radius"),
        (EMMA, {"temperature": math.nan}, "temperature"),
        (LogitAnnealing, {"beta": -1.0}, "beta"),
        (CertificateRegularised, {"constant": math.inf}, "constant"),
    ],
)
def test_bad_arguments_are_named(loss: type[torch.nn.Module], options: dict[str, float], name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{loss.__name__}: {name}="):
        loss(**options)
