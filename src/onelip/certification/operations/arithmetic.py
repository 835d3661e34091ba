"""Sums, differences, multiples by constants, and the larger or smaller of two values.

A value of n entries that is broadcast to m counts sqrt(m / n): each of its entries is there m / n times.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onelip.certification.graph import Entrywise, EntrywiseAffine, Extremum, exactly
from onelip.certification.operations.elementwise import clamp
from onelip.certification.operations.registered import Call, entries, operation, root
from onelip.certification.traced import Comparison, Traced
from onelip.linalg.layer_bound import Arithmetic, Rounding, RoundingError
from onelip.linalg.proven import SAFETY


def _number(value: Any) -> Any:
    """A constant in float64; numbers of Python stay numbers."""
    return value if isinstance(value, int | float | Comparison) else torch.as_tensor(value).detach().double()


def _is_held(call: Call, value: Any) -> bool:
    """Whether the program uses these numbers as they are: others are rounded to its type first."""
    return isinstance(value, Tensor) and value.dtype == call.tracer.dtype


def _copies(call: Call, x: Traced, value: Tensor) -> float:
    """sqrt(copies) of a traced value in a result; dimension 0 stays the batch of both."""
    if x.dim() != value.dim() or x.shape[0] != value.shape[0]:
        raise call.refused(
            f"shapes {tuple(x.shape)} and {tuple(value.shape)} do not keep the batch first; reshape before"
        )
    return root(entries(value) // max(1, entries(x)))


def sum_rounding(constant: float, count: int, ulps: float = 1.0) -> Rounding:
    """Each sum is rounded relative to its terms; `constant` is the norm of those that are fixed numbers."""

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        unit = ulps * arithmetic.unit_roundoff * (1 + 2 * ulps * arithmetic.unit_roundoff)
        return RoundingError(unit * SAFETY, (unit * constant + 4 * arithmetic.tiny * math.sqrt(count)) * SAFETY)

    return rounding


def _norm(number: Any, value: Tensor) -> float:
    """Norm of constants spread over one input of the batch, the largest one's."""
    return _largest(number) * math.sqrt(entries(value)) * SAFETY


def _add(call: Call, first: Any, second: Any, sign: float) -> Traced:
    """first + sign * second; the sign is that of a subtraction or an `alpha`."""
    one, other = _plain(first), _plain(second)
    value = torch.as_tensor(one + (other if sign == 1 else sign * other))
    traced = [(x, weight) for x, weight in ((first, 1.0), (second, abs(sign))) if isinstance(x, Traced)]
    pairs = [(x, weight * _copies(call, x, value) * (SAFETY if weight != 1 else 1.0)) for x, weight in traced]
    ulps = 1.0 if abs(sign) == 1 else 4.0
    if len(pairs) == 2:
        return call.add(pairs, value, sum_rounding(0.0, entries(value), ulps))
    x, coefficient = pairs[0]
    given = second if isinstance(first, Traced) else first
    number = _number(given)
    if not isinstance(number, Tensor) and number == 0 and abs(sign) == 1:
        return call.add([(x, coefficient)], value, exactly, facts=(Entrywise(),))
    size = _norm(number, value) * max(1.0, abs(sign)) * SAFETY
    rounding = sum_rounding(size, entries(value), ulps if _is_held(call, given) else ulps + 1)
    if x.shape != value.shape:
        return call.add([(x, coefficient)], value, rounding)
    factor, shift = (sign, number) if isinstance(second, Traced) else (1.0, sign * number)
    return call.add([(x, coefficient)], value, rounding, facts=_scaled(value, factor, shift, 3))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Traced) else _number(value)


def _scaled(value: Tensor, factor: Any, shift: Any, roundings: int) -> tuple[EntrywiseAffine, ...]:
    """How features are scaled and shifted, which matters behind a linear head; the same for all inputs."""
    if value.dim() != 2:
        return (EntrywiseAffine(torch.empty(0), torch.empty(0), roundings),)
    rows = [torch.as_tensor(number, dtype=torch.float64).cpu() for number in (factor, shift)]
    if any(number.dim() > 1 and number.shape[0] != 1 for number in rows):
        return (EntrywiseAffine(torch.empty(0), torch.empty(0), roundings),)
    spread = [number.reshape(-1).expand(value.shape[1]) for number in rows]
    return (EntrywiseAffine(spread[0], spread[1], roundings),)


operation("add", "__add__", "__radd__", "__iadd__")(
    lambda call, input, other, alpha=1: _add(call, input, other, float(alpha))
)
operation("sub", "subtract", "__sub__", "__isub__")(
    lambda call, input, other, alpha=1: _add(call, input, other, -float(alpha))
)
operation("rsub", "__rsub__")(lambda call, input, other, alpha=1: _add(call, other, input, -float(alpha)))


def _scale(call: Call, x: Traced, factor: Any, ulps: float = 2.0) -> Traced:
    """x times constants."""
    number = _number(factor)
    value = torch.as_tensor(x.value * number)
    coefficient = _largest(number)
    copies = _copies(call, x, value)
    exact = not isinstance(number, Tensor) and number in (1, -1)
    steps = ulps if _is_held(call, factor) else ulps + 1
    rounding = exactly if exact else _scale_rounding(steps, entries(value), coefficient)
    facts = _scaled(value, number, 0.0, 3) if x.shape == value.shape else ()
    total = coefficient * copies * (1.0 if coefficient == 1 or copies == 1 else SAFETY)
    return call.add([(x, total)], value, rounding, facts=facts)


def _largest(number: Any) -> float:
    if isinstance(number, Tensor):
        largest = float(number.abs().amax()) if number.numel() else 0.0
        return math.inf if math.isnan(largest) else largest
    return abs(float(number))


def _scale_rounding(ulps: float, count: int, coefficient: float) -> Rounding:
    """Products are rounded relative to themselves; factors, inputs and products may underflow."""

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        tiny = 8 * arithmetic.tiny
        lost = min(2.0, tiny / coefficient) if coefficient > 0 else 2.0
        constant = tiny * (1 + coefficient) * math.sqrt(count)
        return RoundingError((ulps * arithmetic.unit_roundoff + lost) * SAFETY, constant * SAFETY)

    return rounding


@operation("mul", "multiply", "__mul__", "__rmul__", "__imul__")
def mul(call: Call, input: Any, other: Any) -> Any:
    """x times constants, in either order."""
    if isinstance(input, Traced) and isinstance(other, Traced):
        raise call.refused("a product of two values that depend on the input has no Lipschitz constant")
    return _scale(call, input, other) if isinstance(input, Traced) else _scale(call, other, input)


@operation("div", "divide", "true_divide", "__truediv__", "__itruediv__")
def div(call: Call, input: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """x divided by constants."""
    if rounding_mode is not None:
        raise call.refused("it rounds to integers, which jumps")
    x = call.traced(input, "a division by a value that depends on the input has no Lipschitz constant")
    number = _number(call.constant(other, "a division by a value that depends on the input has no Lipschitz constant"))
    smallest = float(number.abs().amin()) if isinstance(number, Tensor) else abs(float(number))
    if not smallest > 0:
        raise call.refused("it divides by zero")
    value = x.value / number
    coefficient, copies = 1.0 if smallest == 1 else SAFETY / smallest, _copies(call, x, value)
    # The reciprocal may be taken first, which is one rounding more.
    rounding = _scale_rounding(4.0, entries(value), coefficient)
    facts = _scaled(value, 1.0 / number, 0.0, 5) if x.shape == value.shape else ()
    total = coefficient * copies * (1.0 if copies == 1 else SAFETY)
    return call.add([(x, total)], value, rounding, facts=facts)


def _extremum(call: Call, first: Any, second: Any, which: Any) -> Traced:
    function = torch.maximum if which == "max" else torch.minimum
    if not (isinstance(first, Traced) and isinstance(second, Traced)):
        x, limit = (first, second) if isinstance(first, Traced) else (second, first)
        return clamp(call, x, limit) if which == "max" else clamp(call, x, None, limit)
    value = function(first.value, second.value)
    pairs = [(x, _copies(call, x, value)) for x in (first, second)]
    facts = (Extremum(which),) if first.shape == second.shape else ()
    return call.add(pairs, value, exactly, facts=facts, joint=True)


@operation("maximum", "fmax")
def maximum(call: Call, input: Any, other: Any) -> Traced:
    """The larger of two values: |max(a, b) - max(a', b')| <= max(|a - a'|, |b - b'|)."""
    return _extremum(call, input, other, "max")


@operation("minimum", "fmin")
def minimum(call: Call, input: Any, other: Any) -> Traced:
    """The smaller of two values."""
    return _extremum(call, input, other, "min")


def _compared(call: Call, first: Any, second: Any, greater: bool) -> Comparison:
    if not isinstance(first, Traced):
        return _compared(call, second, first, not greater)
    return Comparison(first, second, greater)


# Where two entries are equal, a choice between them makes no difference.
operation("ge", "gt", "greater", "greater_equal", "__ge__", "__gt__")(
    lambda call, input, other: _compared(call, input, other, True)
)
operation("le", "lt", "less", "less_equal", "__le__", "__lt__")(
    lambda call, input, other: _compared(call, input, other, False)
)


@operation("where")
def where(call: Call, condition: Any, input: Any = None, other: Any = None) -> Traced:
    """Of two values the larger or the smaller, as `where(a >= b, a, b)`; any other choice jumps."""
    chosen = tuple(value.node if isinstance(value, Traced) else None for value in (input, other))
    if not isinstance(condition, Comparison) or None in chosen or set(chosen) != set(condition.nodes):
        raise call.refused(
            "a choice by a condition on values jumps in general; use torch.maximum, torch.minimum or clamp, and for a "
            "fixed mask its product with the values"
        )
    largest = condition.greater == (chosen[0] is condition.nodes[0])
    return _extremum(call, input, other, "max" if largest else "min")


@operation("lerp")
def lerp(call: Call, input: Any, end: Any, weight: Any) -> Traced:
    """(1 - w) x + w y with constant weights: 1 for w in [0, 1] and two 1-Lipschitz branches."""
    number = _number(call.constant(weight, "its weight must not depend on the input"))
    values = _plain(input), _plain(end)
    value = torch.lerp(values[0], values[1], number)
    shares = _largest(1 - number) * SAFETY, _largest(number)
    operands = list(zip((input, end), shares, strict=True))
    pairs = [(x, share * _copies(call, x, value)) for x, share in operands if isinstance(x, Traced)]
    fixed = sum(_norm(x, value) for x in values if not any(x is pair[0].value for pair in pairs))
    rounding = sum_rounding(fixed, entries(value), 8 * (1 + max(shares)))
    spread = tuple(_copies(call, x, value) for x, _ in pairs)
    return call.add(pairs, value, rounding, weighted=spread)
