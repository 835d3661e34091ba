"""Functions that have a constant where their inputs are bounded, and softmax and its kin, which have one everywhere."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from onelip.certification.operations.elementwise import LIBRARY_ULPS
from onelip.certification.operations.refused import refusal
from onelip.certification.registered_bounds import Argument, Bound, builtin_bound

_LARGEST_EXPONENT = 80.0
"""e^80 is a float32."""


def _root(x: Argument) -> float:
    return math.sqrt(x.entries)


def _below(name: str) -> str:
    return f"{refusal(name, '')}; clamp its input, or put it behind tanh, sigmoid or a sum with a positive number"


@builtin_bound(torch.exp, "exp")
def exp(x: Argument) -> Bound | str:
    """e^x, steepest at the upper end."""
    low, high = x.range
    if not high <= _LARGEST_EXPONENT:
        return _below("exp")
    top = math.exp(high)
    return Bound(top, top * _root(x), LIBRARY_ULPS, (math.exp(low), top), entrywise=True)


@builtin_bound(torch.expm1, "expm1")
def expm1(x: Argument) -> Bound | str:
    """e^x - 1, steepest at the upper end."""
    low, high = x.range
    if not high <= _LARGEST_EXPONENT:
        return _below("exp")
    steepest, ends = math.exp(max(high, 0.0)), (math.expm1(low), math.expm1(high))
    return Bound(steepest, _root(x), LIBRARY_ULPS, ends, entrywise=True)


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


@builtin_bound(torch.sqrt, "sqrt")
def sqrt(x: Argument) -> Bound | str:
    """The square root of numbers above a positive one: sqrt(x) <= (x / sqrt(low) + sqrt(low)) / 2."""
    low, high = x.range
    if not low > 1e-30:
        return _below("sqrt")
    least = math.sqrt(low)
    return Bound(0.5 / least, 0.5 * least * _root(x), 4.0, (least, math.sqrt(high)), entrywise=True)


@builtin_bound(torch.rsqrt, "rsqrt")
def rsqrt(x: Argument) -> Bound | str:
    """One over the square root of numbers above a positive one."""
    low, high = x.range
    if not low > 1e-30:
        return _below("sqrt")
    largest = 1 / math.sqrt(low)
    return Bound(0.5 * largest**3, largest * _root(x), 8.0, (1 / math.sqrt(high), largest), entrywise=True)


@builtin_bound(torch.log, "log")
def log(x: Argument) -> Bound | str:
    """The logarithm of numbers above a positive one: |log x| <= |log low| + (x - low) / low."""
    low, high = x.range
    if not low > 1e-30:
        return _below("log")
    return Bound(1 / low, abs(math.log(low)) * _root(x), LIBRARY_ULPS, (math.log(low), math.log(high)), entrywise=True)


@builtin_bound(torch.log1p, "log1p")
def log1p(x: Argument) -> Bound | str:
    """log(1 + x) of numbers above -1."""
    low, high = x.range
    if not low > -0.999:
        return _below("log")
    steepest = 1 / (1 + min(low, 0.0))
    return Bound(steepest, 0.0, LIBRARY_ULPS, (math.log1p(low), math.log1p(high)), entrywise=True)


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
