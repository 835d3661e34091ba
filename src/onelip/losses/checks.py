"""Checks of the arguments of losses. What is on a GPU is not looked at, which would make the host wait."""

from __future__ import annotations

import math
from numbers import Real
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError

Reduction = Literal["mean", "sum", "none"]
"""What is returned of the losses of a batch, as in torch."""


class Loss(nn.Module):
    """A loss with finite numbers as arguments: above 0, or of at least 0 if they are in `may_be_zero`.

    `reduction` is "mean", "sum" or "none", as in torch's losses.
    """

    may_be_zero: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, reduction: Reduction, **numbers: float) -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise InvalidInputError(f"{type(self).__name__}: reduction={reduction!r} must be mean, sum or none")
        self.reduction: Reduction = reduction
        self._arguments: tuple[str, ...] = ()
        self._check_numbers(**numbers)

    def _check_numbers(self, **numbers: float) -> None:
        for name, value in numbers.items():
            zero = name in self.may_be_zero
            if not (isinstance(value, Real) and math.isfinite(value) and (value > 0 or (zero and value == 0))):
                allowed = "of at least 0" if zero else "above 0"
                raise InvalidInputError(f"{type(self).__name__}: {name}={value!r} must be a number {allowed}")
        self._arguments += tuple(numbers)

    def extra_repr(self) -> str:
        """The arguments."""
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._arguments)


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The losses (batch,) of a batch as they are, their mean or their sum."""
    return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()


def check_scores(scores: Tensor, labels: Tensor) -> None:
    """Scores (batch, classes) of at least two classes and integer labels (batch,) of these."""
    check_tensor("scores", scores)
    check_tensor("labels", labels)
    if scores.dim() != 2 or scores.shape[1] < 2 or labels.shape != scores.shape[:1]:
        raise InvalidInputError(
            "expected scores (batch, classes) of at least two classes and labels (batch,), got "
            f"{tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    if not scores.is_floating_point():
        raise InvalidInputError(f"scores must be floating-point numbers such as float32, got {scores.dtype}")
    if labels.dtype != torch.int64:
        raise InvalidInputError(f"labels must be class numbers of type torch.int64, got {labels.dtype}")
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():
        check_classes(labels, scores.shape[1])


def check_tensor(name: str, values: Tensor) -> None:
    """Scores and labels are tensors, not lists of numbers."""
    if not isinstance(values, Tensor):
        raise InvalidInputError(f"{name} must be a tensor, got a {type(values).__name__}: use torch.as_tensor({name})")


def check_labels(labels: Tensor, batch: int, classes: int) -> None:
    """Labels (batch,) of classes, of any type of whole numbers, wherever they are."""
    check_tensor("labels", labels)
    if labels.is_floating_point() or labels.is_complex():
        raise InvalidInputError(f"labels must be class numbers of type torch.int64, got {labels.dtype}")
    if tuple(labels.shape) != (batch,):
        raise InvalidInputError(f"labels have the shape {tuple(labels.shape)}, expected {(batch,)}")
    check_classes(labels, classes)


def check_classes(labels: Tensor, classes: int) -> None:
    """Labels are numbers of classes, 0 to classes - 1; the first that is not is named."""
    numbers = labels.long()
    wrong = numbers[(numbers < 0) | (numbers >= classes)]
    if len(wrong):
        raise InvalidInputError(f"labels must be class numbers from 0 to {classes - 1}, got {int(wrong[0])}")
