"""Numbers that a call is given, and what is left of them in the program's type."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from onelip.proofs.layer_bound import FLOAT32, Arithmetic, LayerBound, Rounding, RoundingError


def survives(numbers: Any, arithmetic: Arithmetic) -> bool:
    """Whether numbers are zero or normal in a type, so that its program knows them up to one rounding.

    Larger ones are infinite there. Smaller ones may be zero, whose reciprocals are infinite and whose products are 0.
    """
    sizes = torch.as_tensor(numbers, dtype=torch.float64).abs()
    largest = 4 * (1 - arithmetic.unit_roundoff) / arithmetic.tiny
    return bool(((sizes == 0) | ((sizes >= arithmetic.tiny) & (sizes <= largest))).all())


def magnitude(*numbers: Any) -> float:
    """The largest magnitude among numbers and tensors: 0 where there is none, infinite where one is no number."""
    sizes = [torch.as_tensor(number, dtype=torch.float64).abs().flatten() for number in numbers if number is not None]
    together = torch.cat([torch.zeros(1, dtype=torch.float64), *(size.cpu() for size in sizes)])
    return float(together.nan_to_num(nan=math.inf, posinf=math.inf).amax())


def surviving(rounding: Rounding, *numbers: Any) -> Rounding:
    """The rounding of a call that uses these numbers, unlimited in types where one of them does not survive."""
    if all(survives(number, FLOAT32) for number in numbers):
        return rounding  # so it does in float64

    def limited(arithmetic: Arithmetic) -> RoundingError:
        held = all(survives(number, arithmetic) for number in numbers)
        return rounding(arithmetic) if held else RoundingError(math.inf, math.inf)

    return limited


def with_numbers(bound: LayerBound, *numbers: Any) -> LayerBound:
    """The bound of a call that uses these numbers."""
    assert bound.rounding is not None
    return replace(bound, rounding=surviving(bound.rounding, *numbers))


def lost_powers(terms: int, arithmetic: Arithmetic, outputs: int, order: float = 2.0) -> float:
    """Powers that underflow are lost, which a root turns into (n tiny)^(1 / order) at each output."""
    lost = 8 * terms * arithmetic.tiny
    return lost ** (1 / order) * math.sqrt(outputs) if 2 < order < math.inf else math.sqrt(lost * outputs)
