"""Bounds of operations that onelip does not know, or that have one on a bounded range: `register_bound`.

    @register_bound(torch.ops.mine.squash)
    def squash(x, height=1.0):
        return Bound(lipschitz=height, ulps=8, range=(-height, height), entrywise=True)

The same table serves `certify` and `convert`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from onelip.certification.graph import Entrywise, Range, Shape
from onelip.certification.operations.numbers import with_numbers
from onelip.certification.operations.refused import refusal
from onelip.certification.operations.registered import (
    Call,
    Operation,
    entries,
    find_operation,
    operation,
    register_operation,
)
from onelip.certification.ranges import EVERYTHING, range_of, widened
from onelip.certification.traced import Traced, mapped, nested
from onelip.errors import InvalidInputError
from onelip.proofs.layer_bound import Peak, relative_bound
from onelip.proofs.proven import SAFETY

_RANGES: tuple[Range, ...] = (EVERYTHING, (-1.0, 1.0), (0.5, 2.0))
_SHAPES: tuple[Shape, ...] = ((2, 6), (2, 3, 4))


@dataclass(frozen=True)
class Argument:
    """What a rule knows about the tensor: its shape, the batch first, and the range of its entries."""

    shape: Shape
    range: Range = EVERYTHING

    @property
    def entries(self) -> int:
        """Entries of one input."""
        return math.prod(self.shape[1:])

    def length(self, dim: int) -> int:
        """Entries along a dimension, which must not be the batch."""
        if dim % len(self.shape) == 0:
            raise InvalidInputError("it acts along dimension 0, which is the batch: inputs must be mapped one by one")
        return self.shape[dim]


@dataclass(frozen=True)
class Bound:
    """What is proven about a call f, in exact arithmetic, for entries in the range that the rule received.

    ||f(x) - f(y)|| <= lipschitz * ||x - y|| and ||f(x)|| <= lipschitz * ||x|| + offset, over all entries of one input.
    The program is off by at most `ulps` units of roundoff, relative to the latter. `range` is that of its entries,
    `entrywise` whether each depends on the entry at the same place alone. Nothing that is computed on the way is
    infinite in float32 where entries of the input are at most `entries_below`. `convert` makes the module that
    `onelip.convert` puts in the place of the call.
    """

    lipschitz: float
    offset: float = 0.0
    ulps: float = 4.0
    range: Range = EVERYTHING
    entries_below: float = math.inf
    entrywise: bool = False
    convert: Callable[[], nn.Module] | None = None


Rule = Callable[..., Bound | str]
"""Takes an `Argument` and the call's other arguments; returns a `Bound`, or why there is none."""

AnyRule = TypeVar("AnyRule", bound=Rule)


def register_bound(*functions: Any, arguments: Sequence[Any] = ()) -> Callable[[AnyRule], AnyRule]:
    """Teach onelip the bound of functions or operators that torch can intercept, `torch.sinc` or `torch.ops.mine.op`.

    The rule is checked at once, on random inputs and with these other arguments: a bound that a derivative, a pair of
    points or a number refutes is refused.

    Examples:
        >>> import torch, onelip
        >>> from onelip.certification import Bound, register_bound
        >>> @register_bound(torch.special.i0e)
        ... def i0e_bound(x):
        ...     return Bound(lipschitz=1.0, offset=x.entries**0.5, ulps=64, range=(0.0, 1.0), entrywise=True)
    """

    def register(rule: AnyRule) -> AnyRule:
        for function in functions:
            _check(function, rule, arguments)
            name = getattr(function, "__name__", str(function))
            register_operation(function, Operation(name, functools.partial(_apply, function, rule), False))
        return rule

    return register


def builtin_bound(function: Callable[..., Tensor], *names: str) -> Callable[[Rule], Rule]:
    """As `register_bound`, for every form of torch's own operations of these names."""

    def register(rule: Rule) -> Rule:
        operation(*names)(functools.partial(_apply, function, rule))
        return rule

    return register


def _apply(
    function: Callable[..., Any], rule: Rule, call: Call, input: Any, *arguments: Any, **keywords: Any
) -> Traced:
    x = call.traced(input)
    if any(isinstance(part, Traced) for part in nested((arguments, keywords))):
        raise call.refused("its other arguments must not depend on the input")
    for dtype in (keywords.pop("dtype", None), *(part for part in arguments if isinstance(part, torch.dtype))):
        call.same_type(dtype)
    arguments = tuple(part for part in arguments if not isinstance(part, torch.dtype))
    try:
        inspect.signature(rule).bind(input, *arguments, **keywords)
    except TypeError as error:
        raise call.refused(f"these arguments are not supported ({error})") from None
    shape, (limits, wider) = tuple(x.shape), widened(range_of(x.node))
    found = _asked(rule, Argument(shape, limits), arguments, keywords)
    if isinstance(found, str):
        raise call.refused(found)
    others = mapped((arguments, keywords), lambda part: call.constant(part, "") if isinstance(part, Tensor) else part)
    value = function(x.value, *others[0], **others[1])
    bound = relative_bound(found.lipschitz * SAFETY, found.ulps, entries(value), found.offset * SAFETY)
    numbers = [part for part in nested((arguments, keywords)) if isinstance(part, float)]
    bound = replace(with_numbers(bound, *numbers), peak=_peak(found.entries_below))
    facts = [Entrywise()] if found.entrywise else []
    result = call.unary(x, value, bound, *facts, limits=lambda _: found.range)
    if limits != EVERYTHING and _asked(rule, Argument(shape), arguments, keywords) != found:
        result.node.margin = wider / 2
    return result


def conversion_of(
    target: Any, arguments: Sequence[Any], keywords: dict[str, Any]
) -> str | Callable[[], nn.Module] | None:
    """What `convert` may do with a call, of which the arguments behind the first are given.

    A reason: the call has no bound, whatever its input is. A callable: it makes the module that takes its place. None:
    the call may stay. `target` is a function, an operator of Python, or the name of a method.
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    if isinstance(target, str):
        target = getattr(Tensor, target, None)
    elif getattr(target, "__module__", "") == "_operator":
        target = getattr(Tensor, f"__{name.strip('_')}__", None)
    found = find_operation(target)
    if found is None:
        return refusal(name, "")
    if not isinstance(found.handler, functools.partial) or found.handler.func is not _apply:
        return None
    try:
        bound = _asked(found.handler.args[1], Argument((2, 4, 4, 4)), arguments, keywords)
    except Exception:  # of the model, which certificates will meet
        return None
    return bound if isinstance(bound, str) else bound.convert


def _asked(rule: Rule, x: Argument, arguments: Sequence[Any], keywords: dict[str, Any]) -> Bound | str:
    try:
        return rule(x, *arguments, **keywords)
    except InvalidInputError as error:
        return str(error)


def _peak(limit: float) -> Peak | None:
    if limit == math.inf:
        return None
    return lambda size: torch.where(size <= limit, 0.0, torch.inf)


def _check(function: Callable[..., Any], rule: Rule, arguments: Sequence[Any]) -> None:
    """Raise where a bound is refuted, or where there is nothing that it could be checked on."""
    checked, draw = False, torch.Generator().manual_seed(0)
    for shape, found_range in itertools.product(_SHAPES, _RANGES):
        bound = _asked(rule, Argument(shape, found_range), arguments, {})
        if isinstance(bound, str):
            continue
        low, high = (max(-100.0, found_range[0]), min(100.0, found_range[1]))
        x = torch.rand((8, *shape), generator=draw, dtype=torch.float64) * (high - low) + low
        x[0] = (low + high) / 2  # ties
        for point in x:
            _compare(function, bound, arguments, point, x[1] - point)
        checked = True
    if not checked:
        raise InvalidInputError(
            f"the bound of {function} was checked nowhere: give arguments=... that it is called with"
        )


def _compare(function: Callable[..., Any], bound: Bound, arguments: Sequence[Any], x: Tensor, way: Tensor) -> None:
    value = function(x, *arguments)
    for step in (1.0, 1e-2, 1e-5):
        moved = x + step * way
        distance = torch.linalg.vector_norm((moved - x).reshape(len(x), -1), dim=1)
        change = torch.linalg.vector_norm((function(moved, *arguments) - value).reshape(len(x), -1), dim=1)
        _refute(change, bound.lipschitz * distance * (1 + 1e-9) + 1e-12 * (1 + bound.offset), "pair of points")
    if not bool(((value >= bound.range[0] - 1e-12) & (value <= bound.range[1] + 1e-12)).all()):
        raise InvalidInputError(f"the range {bound.range} does not hold a value of {function}")
    size = bound.lipschitz * torch.linalg.vector_norm(x.reshape(len(x), -1), dim=1) + bound.offset
    _refute(torch.linalg.vector_norm(value.reshape(len(x), -1), dim=1), size * (1 + 1e-9), "norm")
    narrow = x.float()
    off = (function(narrow, *arguments).double() - function(narrow.double(), *arguments)).reshape(len(x), -1)
    allowed = bound.ulps * 2.0**-24 * size * (1 + 1e-5) + 1e-37 * off.shape[1]
    _refute(torch.linalg.vector_norm(off, dim=1), allowed, "rounding error")


def _refute(found: Tensor, allowed: Tensor, what: str) -> None:
    if not bool((found <= allowed).all()):
        worst = int((found - allowed).argmax())
        raise InvalidInputError(
            f"this bound is false: a {what} is {float(found[worst]):.6g}, above {float(allowed[worst]):.6g} as stated"
        )
