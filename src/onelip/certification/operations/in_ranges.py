"""Functions that have a constant where their inputs are bounded, and softmax and its kin, which have one everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from onelip.certification.graph import Range
from onelip.certification.operations.elementwise import LIBRARY_ULPS
from onelip.certification.operations.refused import refusal
from onelip.certification.registered_bounds import Argument, Bound, builtin_bound


def _root(x: Argument) -> float:
    return math.sqrt(x.entries)


def _rsqrt(x: float) -> float:
    return 1 / math.sqrt(x)


def _below(name: str) -> str:
    return f"{refusal(name, '')}; clamp its input, or put it behind tanh, sigmoid or a sum with a positive number"


_UNDER_80 = (-math.inf, 80.0)
"""e^80 is a float32."""
_POSITIVE = (1e-30, math.inf)

_MONOTONE: dict[str, tuple[Callable[[float], float], Range, str, Callable[..., Range], float]] = {
    # name: (function; above and up to which numbers; as what it is refused elsewhere; slope and height of a line that
    # it does not exceed, from the ends of the range; ulps)
    "exp": (math.exp, _UNDER_80, "exp", lambda _, high: (math.exp(high), math.exp(high)), LIBRARY_ULPS),
    "expm1": (math.expm1, _UNDER_80, "exp", lambda _, high: (math.exp(max(high, 0.0)), 1.0), LIBRARY_ULPS),
    "exp2": (lambda x: 2.0**x, _UNDER_80, "exp", lambda _, high: (0.69315 * 2.0**high, 2.0**high), LIBRARY_ULPS),
    "sqrt": (math.sqrt, _POSITIVE, "sqrt", lambda low, _: (0.5 / math.sqrt(low), 0.5 * math.sqrt(low)), 4.0),
    "rsqrt": (_rsqrt, _POSITIVE, "sqrt", lambda low, _: (0.5 * _rsqrt(low) ** 3, _rsqrt(low)), 8.0),
    "log": (math.log, _POSITIVE, "log", lambda low, _: (1 / low, abs(math.log(low))), LIBRARY_ULPS),
    "log2": (math.log2, _POSITIVE, "log", lambda low, _: (1.4427 / low, abs(math.log2(low))), LIBRARY_ULPS),
    "log10": (
        math.log10,
        _POSITIVE,
        "log",
        lambda low, _: (0.4343 / low, abs(math.log10(low))),
        LIBRARY_ULPS,
    ),
    "log1p": (math.log1p, (-0.999, math.inf), "log", lambda low, _: (1 / (1 + min(low, 0.0)), 0.0), LIBRARY_ULPS),
}


def _register_monotone(name: str) -> None:
    function, (least, most), reason, line, ulps = _MONOTONE[name]

    @builtin_bound(getattr(torch, name), name)
    def rule(x: Argument) -> Bound | str:
        low, high = x.range
        if not (low > least or least == -math.inf) or not high <= most:
            return _below(reason)
        (slope, height), ends = line(low, high), sorted(map(function, x.range))
        return Bound(slope, height * _root(x), ulps, (ends[0], ends[1]), entrywise=True)


for _name in _MONOTONE:
    _register_monotone(_name)


def _power(x: Argument, exponent: Any) -> Bound | str:
    """x^p for p of at least 1: slopes up to p times the largest magnitude to the power p - 1."""
    low, high = x.range
    largest = max(-low, high)
    if not isinstance(exponent, int | float) or not exponent >= 1 or (exponent % 1 and low < 0):
        return "only powers of at least 1 with a fixed exponent have a bound, of fractions on positive numbers"
    if not largest <= 2.0 ** (100 / max(1.0, float(exponent))):
        return _below("pow")
    ends = 0.0 if exponent % 2 == 0 else -(abs(low) ** exponent), largest**exponent
    return Bound(exponent * largest ** (exponent - 1), 0.0, LIBRARY_ULPS, ends, entrywise=True)


builtin_bound(torch.pow, "pow", "__pow__")(_power)
builtin_bound(torch.square, "square")(lambda x: _power(x, 2))


def _over(x: Argument, number: Any) -> Bound | str:
    """A number divided by values away from zero."""
    low, high = x.range
    least = max(low, -high)
    if not least > 1e-18 or not isinstance(number, int | float):
        return _below("reciprocal")
    ends = sorted(number / end for end in x.range)
    top = abs(number) / least
    return Bound(top / least, top * _root(x), 8.0, (ends[0], ends[1]), entrywise=True)


builtin_bound(torch.reciprocal, "reciprocal")(lambda x: _over(x, 1.0))
builtin_bound(lambda x, other: other / x, "__rtruediv__")(_over)


@builtin_bound(lambda x, dim, *_, **__: F.softmax(x, dim), "softmax")
def softmax(x: Argument, dim: int | None = None, _stacklevel: int = 3, half_to_float: bool = False) -> Bound | str:
    """diag(p) - p p^T has norm at most 1/2."""
    if dim is None or half_to_float:
        return "name the dimension of softmax"
    length = x.length(dim)
    return Bound(0.5, math.sqrt(x.entries / max(1, length)), length + 2 * LIBRARY_ULPS, (0.0, 1.0))


@builtin_bound(lambda x, dim, *_, **__: F.log_softmax(x, dim), "log_softmax")
def log_softmax(x: Argument, dim: int | None = None, _stacklevel: int = 3, half_to_float: bool = False) -> Bound | str:
    """I - 1 p^T: its norm is convex in p, and sqrt(n) where p is one class."""
    if dim is None or half_to_float:
        return "name the dimension of log_softmax"
    length = x.length(dim)
    offset = _root(x) * (1 + math.log(max(1, length)))
    return Bound(math.sqrt(length), offset, length + 2 * LIBRARY_ULPS, (-math.inf, 0.0))


@builtin_bound(torch.logsumexp, "logsumexp")
def logsumexp(x: Argument, dim: Any, keepdim: bool = False) -> Bound | str:
    """Its gradient is a softmax, of norm at most 1."""
    dims = [dim] if isinstance(dim, int) else list(dim)
    count = math.prod(x.length(each) for each in dims)
    if not dims or not count:
        return "it acts along all dimensions, the batch among them; name the others"
    return Bound(1.0, math.sqrt(x.entries / count) * (1 + math.log(count)), count + 2 * LIBRARY_ULPS)


@builtin_bound(torch.cumsum, "cumsum")
def cumsum(x: Argument, dim: int) -> Bound | str:
    """The triangular matrix of ones: its largest singular value is 1 / (2 sin(pi / (4 n + 2)))."""
    length = x.length(dim)
    return Bound(0.5 / math.sin(math.pi / (4 * length + 2)), 0.0, length + 2.0)
