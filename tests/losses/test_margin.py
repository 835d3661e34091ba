from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.losses import MultiMargin, OffsetCrossEntropy


def random_batch(batch: int = 5, classes: int = 4) -> tuple[Tensor, Tensor]:
    scores = torch.randn(batch, classes, dtype=torch.float64, requires_grad=True)
    return scores, torch.randint(classes, (batch,))


def test_defaults_are_those_of_the_paper() -> None:
    loss = OffsetCrossEntropy()
    assert loss.offset == pytest.approx(2 * math.sqrt(2) * 36 / 255)
    assert loss.temperature == 0.25


def test_offset_cross_entropy_by_hand() -> None:
    # Scores (1, 0), label 0, offset 0.5, temperature 0.25: t * log(1 + exp((0 - 0.5) / t)).
    loss = OffsetCrossEntropy(offset=0.5, temperature=0.25)(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert loss.item() == pytest.approx(0.25 * math.log(1 + math.exp(-2)), rel=1e-6)


def test_offset_cross_entropy_against_the_formula() -> None:
    scores, labels = random_batch()
    offset, temperature = 0.7, 0.3
    losses = []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        shifted = [(s - offset * (i == label)) / temperature for i, s in enumerate(row)]
        losses.append(temperature * (math.log(sum(map(math.exp, shifted))) - shifted[label]))
    assert OffsetCrossEntropy(offset, temperature)(scores, labels).item() == pytest.approx(sum(losses) / len(losses))


def test_without_offset_and_at_temperature_one_it_is_cross_entropy() -> None:
    scores, labels = random_batch()
    expected = nn.functional.cross_entropy(scores, labels)
    torch.testing.assert_close(OffsetCrossEntropy(0, 1)(scores, labels), expected)


def test_low_temperature_tends_to_the_hinge_on_the_best_other_class() -> None:
    scores = torch.tensor([[1.0, 0.8, 0.0], [3.0, 0.0, 0.0]])
    loss = OffsetCrossEntropy(offset=0.5, temperature=1e-3)(scores, torch.tensor([0, 0]))
    assert loss.item() == pytest.approx((0.3 + 0.0) / 2, abs=1e-4)


def test_multi_margin_by_hand() -> None:
    scores = torch.tensor([[1.0, 0.8, 0.4], [3.0, 0.0, 0.0]])
    loss = MultiMargin(margin=1.0)(scores, torch.tensor([0, 0]))
    assert loss.item() == pytest.approx(((1 - 0.2) + (1 - 0.6) + 0) / 2)


def test_multi_margin_against_torch() -> None:
    scores, labels = random_batch()
    expected = nn.MultiMarginLoss(margin=0.6)(scores, labels) * scores.shape[1]
    torch.testing.assert_close(MultiMargin(0.6)(scores, labels), expected)


@pytest.mark.parametrize("loss", [OffsetCrossEntropy(), MultiMargin(0.6)])
def test_gradcheck(loss: nn.Module) -> None:
    torch.manual_seed(0)
    scores, labels = random_batch()
    assert torch.autograd.gradcheck(lambda s: loss(s, labels), (scores,))


@pytest.mark.parametrize("loss", [OffsetCrossEntropy(), MultiMargin()])
@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (torch.zeros(4, 3), torch.zeros(3, dtype=torch.int64), r"got \(4, 3\) and \(3,\)"),
        (torch.zeros(4, 3, 2), torch.zeros(4, dtype=torch.int64), r"got \(4, 3, 2\) and \(4,\)"),
        (torch.zeros(4, 3), torch.zeros(4, 3), r"got \(4, 3\) and \(4, 3\)"),
        (torch.zeros(4, 3), torch.zeros(4), "labels must be class numbers of type torch.int64, got torch.float32"),
    ],
)
def test_bad_shapes(loss: nn.Module, scores: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        loss(scores, labels)


@pytest.mark.parametrize(("offset", "temperature"), [(-1.0, 1.0), (math.nan, 1.0), (1.0, 0.0), (1.0, math.inf)])
def test_bad_options(offset: float, temperature: float) -> None:
    with pytest.raises(InvalidInputError, match="must be a number"):
        OffsetCrossEntropy(offset, temperature)


def test_bad_margin() -> None:
    with pytest.raises(InvalidInputError, match="margin=0 must be a number above 0"):
        MultiMargin(0)
