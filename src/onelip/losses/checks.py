"""Checks of the arguments of losses that need no look at the data, and so no synchronisation with a GPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError


def check_scores(scores: Tensor, labels: Tensor) -> None:
    """Scores (batch, classes) and integer labels (batch,)."""
    check_tensor(labels)
    if scores.dim() != 2 or labels.shape != scores.shape[:1]:
        raise InvalidInputError(
            f"expected scores (batch, classes) and labels (batch,), got {tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    if labels.dtype != torch.int64:
        raise InvalidInputError(f"labels must be class numbers of type torch.int64, got {labels.dtype}")


def check_tensor(labels: Tensor) -> None:
    """Labels are a tensor, not a list of numbers."""
    if not isinstance(labels, Tensor):
        raise InvalidInputError(f"labels must be a tensor, got a {type(labels).__name__}: use torch.as_tensor(labels)")


def check_number(loss: nn.Module, name: str, value: float, *, above: float | None = None) -> None:
    """A finite number that is above `above`, or not negative."""
    if not (math.isfinite(value) and (value >= 0 if above is None else value > above)):
        allowed = "of at least 0" if above is None else f"above {above:g}"
        raise InvalidInputError(f"{type(loss).__name__}: {name}={value} must be a number {allowed}")
