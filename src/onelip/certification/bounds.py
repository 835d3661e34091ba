"""Proven upper bounds of the Lipschitz constants of layers and models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from onelip.certification.chain import chain_steps, evaluation_model
from onelip.certification.registry import Shape
from onelip.errors import InvalidInputError
from onelip.linalg.proven import SAFETY


@dataclass(frozen=True)
class LayerRow:
    """One line of the table of bounds: a layer, its constant, and the product up to it."""

    path: str
    kind: str
    output_shape: Shape
    lipschitz: float
    product: float


def lipschitz_table(model: nn.Module, input_shape: Sequence[int] | None = None) -> list[LayerRow]:
    """The proven bound of every layer of a model in evaluation mode, and the products from the input on."""
    steps = chain_steps(evaluation_model(model), checked_shape(model, input_shape))
    rows, product = [], 1.0
    for step in steps:
        product = product_bound([product, step.bound.lipschitz])
        rows.append(LayerRow(step.path, type(step.module).__name__, step.output_shape, step.bound.lipschitz, product))
    return rows


def lipschitz_bound(model: nn.Module, input_shape: Sequence[int] | None = None) -> float:
    """Proven upper bound of the Lipschitz constant of a model in evaluation mode, for inputs of one shape.

    `input_shape` is that of one input without the batch, such as (3, 32, 32); by default `model.input_shape`.
    Raises `UnknownLipschitzConstant`, naming the module, where something is met that no bound is known for.
    """
    rows = lipschitz_table(model, input_shape)
    return rows[-1].product if rows else 1.0


def product_bound(factors: Sequence[float]) -> float:
    """Product of constants, rounded upwards; factors of exactly 1 change nothing."""
    inexact = [factor for factor in factors if factor != 1.0]
    return math.prod(inexact) * (1.0 if len(inexact) <= 1 else SAFETY)


def checked_shape(model: nn.Module, input_shape: Sequence[int] | None) -> Shape:
    """The shape that was passed, or the one that the model declares."""
    shape = getattr(model, "input_shape", None) if input_shape is None else input_shape
    if shape is None:
        raise InvalidInputError("pass input_shape, that of one input without the batch, such as (3, 32, 32)")
    numbers = tuple(int(length) for length in shape)
    if not numbers or min(numbers) < 1:
        raise InvalidInputError(
            f"input_shape={numbers} must be positive numbers without the batch, such as (3, 32, 32)"
        )
    return numbers
