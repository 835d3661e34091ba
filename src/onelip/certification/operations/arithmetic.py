"""Sums, differences, multiples by constants, and the larger or smaller of two values.

A value of n entries that is broadcast to m counts sqrt(m / n): each of its entries is there m / n times.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onelip.certification.graph import Entrywise, EntrywiseAffine, Extremum, Identity, Node, exactly
from onelip.certification.operations.elementwise import clamp, limits_rounding
from onelip.certification.operations.numbers import magnitude, survives, surviving
from onelip.certification.operations.registered import Call, entries, operation, root, side_by_side
from onelip.certification.ranges import affine, summed
from onelip.certification.traced import Comparison, Traced
from onelip.proofs.layer_bound import FLOAT32, Arithmetic, Rounding, RoundingError, relative_bound
from onelip.proofs.proven import SAFETY


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
    return magnitude(number) * math.sqrt(entries(value)) * SAFETY


def summed_with(call: Call, first: Any, second: Any, sign: float = 1.0) -> Traced:
    """first + sign * second; the sign is that of a subtraction or an `alpha`."""
    one, other = _plain(first), _plain(second)
    value = torch.as_tensor(one + (other if sign == 1 else sign * other))
    traced = [(x, weight) for x, weight in ((first, 1.0), (second, abs(sign))) if isinstance(x, Traced)]
    pairs = [(x, weight * _copies(call, x, value) * (SAFETY if weight != 1 else 1.0)) for x, weight in traced]
    ulps = 1.0 if abs(sign) == 1 else 4.0
    if len(pairs) == 2:
        mean = second.node.fact(Identity)
        if sign == -1 and mean is not None and mean.key[:2] == ("mean", identity_of(first.node)):
            return centred(call, first, value, mean.key)
        rounding = surviving(sum_rounding(0.0, entries(value), ulps), sign)
        scaled = affine(sign, 0.0)
        return call.add(pairs, value, rounding, limits=lambda ends: summed([ends[0], scaled(ends[1:])]))
    x, coefficient = pairs[0]
    given = second if isinstance(first, Traced) else first
    number = _number(given)
    if not isinstance(number, Tensor) and number == 0 and abs(sign) == 1:
        return call.add([(x, coefficient)], value, exactly, facts=(Entrywise(),))
    size = _norm(number, value) * max(1.0, abs(sign)) * SAFETY
    rounding = surviving(sum_rounding(size, entries(value), ulps if _is_held(call, given) else ulps + 1), sign)
    factor, shift = (sign, number) if isinstance(second, Traced) else (1.0, sign * number)
    facts = _scaled(value, factor, shift, 3) if x.shape == value.shape else ()
    return call.add([(x, coefficient)], value, rounding, facts=facts, limits=affine(factor, shift))


def identity_of(node: Node) -> Any:
    """Equal for values that are the same function of the input."""
    found = node.fact(Identity)
    return ("node", id(node)) if found is None else found.key


def centred(call: Call, x: Traced, value: Tensor, key: Any) -> Traced:
    """x without its mean: an orthogonal projection."""
    count = math.prod(x.shape[place] for place in key[2])
    bound = relative_bound(1.0, 2.0 * count + 8, entries(value))
    return call.unary(x, value, bound, Identity(("centred", *key[1:])))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Traced) else _number(value)


def _scaled(value: Tensor, factor: Any, shift: Any, roundings: int) -> tuple[EntrywiseAffine, ...]:
    """How features are scaled and shifted, which matters behind a linear head; the same for all inputs."""
    if value.dim() != 2:
        return (EntrywiseAffine(torch.empty(0), torch.empty(0), roundings),)
    rows = [torch.as_tensor(number, dtype=torch.float64).cpu() for number in (factor, shift)]
    if any(number.dim() > 1 and number.shape[0] != 1 for number in rows):
        return (EntrywiseAffine(torch.empty(0), torch.empty(0), roundings),)
    if not survives(rows[0], FLOAT32):  # a head with such factors rounds more than its inner products
        return (EntrywiseAffine(torch.empty(0), torch.empty(0), roundings),)
    spread = [number.reshape(-1).expand(value.shape[1]) for number in rows]
    return (EntrywiseAffine(spread[0], spread[1], roundings),)


operation("add", "__add__", "__radd__", "__iadd__")(
    lambda call, input, other, alpha=1: summed_with(call, input, other, float(alpha))
)
operation("sub", "subtract", "__sub__", "__isub__")(
    lambda call, input, other, alpha=1: summed_with(call, input, other, -float(alpha))
)
operation("rsub", "__rsub__")(lambda call, input, other, alpha=1: summed_with(call, other, input, -float(alpha)))


def scale(call: Call, x: Traced, factor: Any, ulps: float = 2.0) -> Traced:
    """x times constants."""
    number = _number(factor)
    value = torch.as_tensor(x.value * number)
    coefficient = magnitude(number)
    copies = _copies(call, x, value)
    exact = not isinstance(number, Tensor) and number in (1, -1)
    steps = ulps if _is_held(call, factor) else ulps + 1
    rounding = exactly if exact else _scale_rounding(steps, entries(value), coefficient, max(1.0, coefficient))
    facts = _scaled(value, number, 0.0, 3) if x.shape == value.shape else ()
    total = coefficient * copies * (1.0 if coefficient == 1 or copies == 1 else SAFETY)
    return call.add([(x, total)], value, rounding, facts=facts, limits=affine(number, 0.0))


def _scale_rounding(ulps: float, count: int, coefficient: float, used: float) -> Rounding:
    """Products are rounded relative to themselves; factors, inputs and products may underflow, `used` must not."""

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        tiny = 8 * arithmetic.tiny
        lost = min(2.0, tiny / coefficient) if coefficient > 0 else 2.0
        constant = tiny * (1 + coefficient) * math.sqrt(count)
        return RoundingError((ulps * arithmetic.unit_roundoff + lost) * SAFETY, constant * SAFETY)

    return surviving(rounding, used)


@operation("mul", "multiply", "__mul__", "__rmul__", "__imul__")
def mul(call: Call, input: Any, other: Any) -> Any:
    """x times constants, in either order."""
    if isinstance(input, Traced) and isinstance(other, Traced):
        raise call.refused("a product of two values that depend on the input has no Lipschitz constant")
    return scale(call, input, other) if isinstance(input, Traced) else scale(call, other, input)


@operation("div", "divide", "true_divide", "__truediv__", "__itruediv__")
def div(call: Call, input: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """x divided by constants."""
    if rounding_mode is not None:
        raise call.refused("it rounds to integers, which jumps")
    x = call.traced(input, "a division by a value that depends on the input has no Lipschitz constant")
    number = _number(call.constant(other, "a division by a value that depends on the input has no Lipschitz constant"))
    sizes = torch.as_tensor(number, dtype=torch.float64).abs()
    smallest = float(sizes.amin()) if sizes.numel() else 1.0
    if not smallest > 0:
        raise call.refused("it divides by zero")
    value = x.value / number
    coefficient, copies = 1.0 if smallest == 1 else SAFETY / smallest, _copies(call, x, value)
    # The reciprocal may be taken first, which is one rounding more.
    rounding = _scale_rounding(4.0, entries(value), coefficient, smallest)
    facts = _scaled(value, 1.0 / number, 0.0, 5) if x.shape == value.shape else ()
    total = coefficient * copies * (1.0 if copies == 1 else SAFETY)
    return call.add([(x, total)], value, rounding, facts=facts, limits=affine(1.0 / number, 0.0))


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
    if isinstance(condition, Tensor) and condition.dtype == torch.bool:
        return _by_mask(call, condition, input, other)
    chosen = tuple(value.node if isinstance(value, Traced) else None for value in (input, other))
    if not isinstance(condition, Comparison) or None in chosen or set(chosen) != set(condition.nodes):
        raise call.refused(
            "a choice by a condition on values jumps in general; use torch.maximum, torch.minimum or clamp, and for a "
            "fixed mask its product with the values"
        )
    largest = condition.greater == (chosen[0] is condition.nodes[0])
    return _extremum(call, input, other, "max" if largest else "min")


@operation("where", only=(Tensor.where,))
def where_method(call: Call, input: Any, condition: Any, other: Any) -> Any:
    """The same in the order of x.where(mask, y)."""
    return torch.where(condition, input, other)


def _by_mask(call: Call, kept: Tensor, first: Any, second: Any) -> Traced:
    """Places that a constant mask chooses: of values and constants side by side."""
    parts = first, second
    values = [_plain(part) for part in parts]
    tensors = [torch.as_tensor(value, dtype=torch.float64, device=kept.device) for value in values]
    value = torch.where(kept, *tensors)
    for part in (*tensors, kept):
        if part.dim() > value.dim() or (part.dim() == value.dim() and part.shape[0] not in (1, len(value))):
            raise call.refused("its mask would mix the inputs of a batch")
    if any(isinstance(part, Traced) and part.dim() != value.dim() for part in parts) or len(value) != call.tracer.batch:
        raise call.refused("its mask would mix the inputs of a batch")
    if kept.dim() == value.dim() and not bool((kept == kept[:1]).all()):
        raise call.refused("its mask differs between the inputs of a batch")
    one = (kept[:1] if kept.dim() == value.dim() else kept).expand(1, *value.shape[1:])
    nothing = torch.zeros((), dtype=torch.float64)
    masks = kept, ~kept
    pieces = [
        call.moved(
            part, torch.where(mask, part.value, nothing).expand(value.shape), _masked(small), copies=True, view=False
        )
        for part, mask, small in zip(parts, masks, (one, ~one), strict=True)
        if isinstance(part, Traced)
    ]
    if len(pieces) == 2:
        return side_by_side(call, pieces, value)
    (fixed,) = [tensor for part, tensor in zip(parts, tensors, strict=True) if not isinstance(part, Traced)]
    size = magnitude(fixed)
    if not math.isfinite(size):
        raise call.refused("it puts infinity or no number into the value; use a finite number")
    held = isinstance(first, Tensor | Traced) and isinstance(second, Tensor | Traced)
    held = (held or size in (0, 1)) and torch.equal(fixed.to(call.tracer.dtype).double(), fixed)
    rounding = exactly if held else limits_rounding(1.0, size, entries(value))
    return call.moved(pieces[0], value, rounding=rounding, view=False)


def _masked(kept: Tensor) -> Any:
    nothing = torch.zeros((), dtype=torch.float64)
    return lambda t: torch.where(kept, t, nothing)


@operation("masked_fill")
def masked_fill(call: Call, input: Traced, mask: Any, value: Any) -> Traced:
    """Constants where a constant mask is true."""
    if isinstance(mask, Comparison):
        return torch.where(mask, value, input)  # type: ignore[call-overload]
    if not isinstance(mask, Tensor):
        raise call.refused("its mask must not depend on the input, where it jumps")
    return _by_mask(call, ~mask.bool(), call.traced(input), value)


@operation("lerp")
def lerp(call: Call, input: Any, end: Any, weight: Any) -> Traced:
    """(1 - w) x + w y with constant weights: 1 for w in [0, 1] and two 1-Lipschitz branches."""
    number = _number(call.constant(weight, "its weight must not depend on the input"))
    values = _plain(input), _plain(end)
    value = torch.lerp(values[0], values[1], number)
    shares = magnitude(1 - number) * SAFETY, magnitude(number)
    operands = list(zip((input, end), shares, strict=True))
    pairs = [(x, share * _copies(call, x, value)) for x, share in operands if isinstance(x, Traced)]
    fixed = sum(_norm(x, value) for x in values if not any(x is pair[0].value for pair in pairs))
    rounding = surviving(sum_rounding(fixed, entries(value), 8 * (1 + max(shares))), number)
    spread = tuple(_copies(call, x, value) for x, _ in pairs)
    return call.add(pairs, value, rounding, weighted=spread)
