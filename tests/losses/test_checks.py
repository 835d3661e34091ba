"""What losses refuse: one line that says what is wrong and what is allowed, for every loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from onelip import losses
from onelip.errors import InvalidInputError

OF_CLASSES = [
    *(losses.OffsetCrossEntropy, losses.MultiMargin, losses.EMMA, losses.LogitAnnealing),
    *(losses.CertificateRegularised, losses.HKRMulticlass, losses.SoftHKRMulticlass, losses.LseHKRMulticlass),
]
SCORES, LABELS = torch.randn(3, 4), torch.tensor([0, 3, 1])


@pytest.mark.parametrize("loss", OF_CLASSES)
@pytest.mark.parametrize(
    ("scores", "labels", "words"),
    [
        (SCORES, LABELS + 1, "from 0 to 3, got 4"),
        (SCORES, LABELS - 1, "from 0 to 3, got -1"),
        (SCORES, LABELS.float(), "torch.int64, got torch.float32"),
        (SCORES, LABELS.tolist(), "labels must be a tensor, got a list"),
        (SCORES.tolist(), LABELS, "scores must be a tensor, got a list"),
        (SCORES.long(), LABELS, "scores must be floating-point numbers"),
        (SCORES, torch.eye(3, 4), r"got \(3, 4\) and \(3, 4\)"),
        (SCORES[:, :1], LABELS * 0, "at least two classes"),
    ],
)
def test_bad_scores_and_labels_are_told_in_one_line(loss: Any, scores: Any, labels: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        loss()(scores, labels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("loss", OF_CLASSES)
def test_losses_compile_as_one_graph(loss: Any) -> None:
    compiled = torch.compile(loss(), backend="eager", fullgraph=True)
    assert torch.equal(compiled(SCORES, LABELS), loss()(SCORES, LABELS))
