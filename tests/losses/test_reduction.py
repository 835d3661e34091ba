"""Every loss returns the losses of a batch one by one, their sum or their mean, as torch's do."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from onelip import losses
from onelip.errors import InvalidInputError

LOSSES = sorted({cls for cls in vars(losses).values() if inspect.isclass(cls) and issubclass(cls, nn.Module)}, key=str)
BINARY = (losses.KR, losses.HKR)


def batch(loss: type[nn.Module]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    labels = torch.arange(12) % 3
    return (torch.randn(12, 1), labels % 2) if loss in BINARY else (torch.randn(12, 3), labels)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_mean_and_sum_are_those_of_the_single_losses(loss: Any) -> None:
    scores, labels = batch(loss)
    each = loss(reduction="none")(scores, labels)
    assert each.shape == (12,)
    assert torch.allclose(each.sum(), loss(reduction="sum")(scores, labels), rtol=1e-5)
    assert torch.allclose(each.mean(), loss()(scores, labels), rtol=1e-5, atol=1e-6)
    assert torch.equal(loss()(scores, labels), loss(reduction="mean")(scores, labels))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_another_word_is_refused(loss: Any) -> None:
    with pytest.raises(InvalidInputError, match="mean, sum or none"):
        loss(reduction="average")
