"""Functions of one number that are written with several operations: where their values, slopes and errors are.

A `Term` is such a function, x * sigmoid(b * x) for instance, in which every part may be unbounded and the whole is not.
The line is cut into cells. On each, interval arithmetic encloses the value and the derivative, and carries the error of
the program on; cells in which the derivative may be the largest, or a comparison is undecided, are cut again. Entries
beyond 2^300 are in no cell: programs have no certificate there.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onelip.proofs.layer_bound import FLOAT32, Arithmetic, RoundingError, largest_activation
from onelip.proofs.proven import SAFETY

_OUTWARDS = 2.0**-44
_LEAST = 1e-290
_LARGEST_EXPONENT = 300
_CELLS = 200_000
_LIBRARY_ULPS = 32.0
_JUMP = 1e-12
"""Below, a jump cannot be told from rounding in float64, and is counted as such."""
_WIDTHS = {"sin": 2.0, "cos": 2.0, "tanh": 2.0, "erf": 2.0, "sigmoid": 1.0, "atan": 3.15}
"""Of bounded functions: no error is larger."""


class Numbers:
    """Constants of the model, compared by value."""

    def __init__(self, values: Tensor) -> None:
        self.values = values.detach().double().cpu()
        self._key = tuple(self.values.shape), self.values.numpy().tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


class Term(NamedTuple):
    """A function of x by its operation and its parts: terms, numbers; x itself is Term("x")."""

    name: str
    parts: tuple[Any, ...] = ()


X = Term("x")


class Jet(NamedTuple):
    """On each cell the ends of value and derivative, the program's error, and whether a choice is undecided."""

    low: Tensor
    high: Tensor
    least: Tensor
    most: Tensor
    error: Tensor
    unsure: Tensor

    @property
    def size(self) -> Tensor:
        """The largest magnitude of the value."""
        return torch.maximum(self.low.abs(), self.high.abs())

    @property
    def steepest(self) -> Tensor:
        """The largest magnitude of the derivative."""
        return torch.maximum(self.least.abs(), self.most.abs())


@dataclass(frozen=True)
class Measured:
    """What holds for entries in a range: the largest slope, where values are, and what the program rounds.

    The error of an entry x is at most slope |x| + constant where |x| <= `entries_below`.
    """

    lipschitz: float
    range: tuple[float, float]
    rounding: RoundingError
    entries_below: float


def _out(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Ends a little further apart; what is no number may be anything."""
    low = torch.where(low.isnan(), -torch.inf, low - low.abs() * _OUTWARDS)
    return low, torch.where(high.isnan(), torch.inf, high + high.abs() * _OUTWARDS)


def _times(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    products = torch.stack(torch.broadcast_tensors(a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]))
    unknown = products.isnan().any(0)
    low, high = _out(products.amin(0), products.amax(0))
    return torch.where(unknown, -torch.inf, low), torch.where(unknown, torch.inf, high)


Ends = tuple[Tensor, Tensor]
Unary = tuple[Callable[[Tensor, Tensor], Ends], Callable[[Tensor, Tensor], Ends], float]


def _rising(function: Callable[[Tensor], Tensor], least: float = -math.inf) -> Callable[[Tensor, Tensor], Ends]:
    def ends(low: Tensor, high: Tensor) -> Ends:
        found = _out(function(low), function(high) + _LEAST)
        return found[0].clamp(min=least), found[1]

    return ends


def _falling(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Ends]:
    return lambda low, high: _out(function(high), function(low) + _LEAST)


def _peaked(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Ends]:
    """Of an even function that is largest at 0 and falls to either side."""

    def ends(low: Tensor, high: Tensor) -> Ends:
        nearest = torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.abs(), high.abs()))
        return _out(function(torch.maximum(low.abs(), high.abs())), function(nearest) + _LEAST)

    return ends


def _wave(function: Callable[[Tensor], Tensor], first_top: float) -> Callable[[Tensor, Tensor], Ends]:
    """sin and cos, whose tops are at `first_top` plus multiples of 2 pi."""

    def ends(low: Tensor, high: Tensor) -> Ends:
        turn, slack = 2 * math.pi, 1e-9 + 1e-12 * torch.maximum(low.abs(), high.abs())

        def has(place: float) -> Tensor:
            return torch.floor((high + slack - place) / turn) > torch.floor((low - slack - place) / turn)

        a, b = function(low), function(high)
        least, most = _out(torch.minimum(a, b) - slack, torch.maximum(a, b) + slack)
        far = ~(torch.maximum(low.abs(), high.abs()) < 1e6)
        least = torch.where(far | has(first_top + math.pi), -1.0, least)
        return least, torch.where(far | has(first_top), 1.0, most)

    return ends


def _above(limit: float, inside: Callable[[Tensor, Tensor], Ends]) -> Callable[[Tensor, Tensor], Ends]:
    """Anything where a function is not defined."""

    def ends(low: Tensor, high: Tensor) -> Ends:
        outside = ~(low > limit)
        least, most = inside(low, high)
        return torch.where(outside, -torch.inf, least), torch.where(outside, torch.inf, most)

    return ends


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


UNARY: dict[str, Unary] = {
    # name: (value, derivative, units of roundoff)
    "exp": (_rising(torch.exp, 0.0), _rising(torch.exp, 0.0), _LIBRARY_ULPS),
    "expm1": (_rising(torch.expm1), _rising(torch.exp, 0.0), _LIBRARY_ULPS),
    "log": (_above(0.0, _rising(torch.log)), _above(0.0, _falling(torch.reciprocal)), _LIBRARY_ULPS),
    "log1p": (_above(-1.0, _rising(torch.log1p)), _above(-1.0, _falling(lambda x: 1 / (1 + x))), _LIBRARY_ULPS),
    "sqrt": (_above(0.0, _rising(torch.sqrt, 0.0)), _above(0.0, _falling(lambda x: 0.5 * x.rsqrt())), 4.0),
    "sigmoid": (_rising(torch.sigmoid, 0.0), _peaked(lambda x: x.sigmoid() * (-x).sigmoid()), _LIBRARY_ULPS),
    "tanh": (_rising(torch.tanh), _peaked(lambda x: (1 - x.tanh()) * (1 + x.tanh())), _LIBRARY_ULPS),
    "erf": (
        _rising(torch.erf),
        _peaked(lambda x: 2 / math.sqrt(math.pi) * torch.exp(-x.clamp(max=1e10).square())),
        _LIBRARY_ULPS,
    ),
    "atan": (_rising(torch.atan), _peaked(lambda x: 1 / (1 + x.square())), _LIBRARY_ULPS),
    "softplus": (_rising(_softplus, 0.0), _rising(torch.sigmoid, 0.0), _LIBRARY_ULPS),
    "sin": (_wave(torch.sin, math.pi / 2), _wave(torch.cos, 0.0), _LIBRARY_ULPS),
    "cos": (_wave(torch.cos, 0.0), _wave(lambda x: -x.sin(), -math.pi / 2), _LIBRARY_ULPS),
}


def _chained(name: str, a: Jet, arithmetic: Arithmetic) -> Jet:
    value, slope, ulps = UNARY[name]
    low, high = value(a.low, a.high)
    least, most = _times(slope(a.low, a.high), (a.least, a.most))
    size = torch.maximum(low.abs(), high.abs())
    wide = slope(a.low - a.error, a.high + a.error)
    carried = torch.maximum(wide[0].abs(), wide[1].abs()) * a.error
    if name in _WIDTHS:
        carried = carried.clamp(max=_WIDTHS[name])
    made = ulps * arithmetic.unit_roundoff * (size + (0.25 if name == "expm1" else 0.0))
    if name == "softplus":  # beyond its threshold of 20 torch returns x
        made = made + 2.1e-9
    return _checked(Jet(low, high, least, most, carried + made, a.unsure), arithmetic)


def _checked(jet: Jet, arithmetic: Arithmetic) -> Jet:
    """Errors, with what may be lost below the smallest number, and infinite where numbers may be."""
    error = jet.error * (1 + 2.0**-20) + 4 * arithmetic.tiny
    lost = error.isnan() | ~(jet.size + error <= largest_activation(arithmetic))
    return jet._replace(error=error.masked_fill(lost, torch.inf))


def _constant(value: Any, like: Jet, arithmetic: Arithmetic) -> Jet:
    numbers = value.values if isinstance(value, Numbers) else torch.tensor(float(value), dtype=torch.float64)
    numbers = numbers + 0 * like.low.isnan()
    error = arithmetic.unit_roundoff * numbers.abs()  # a number of Python is rounded first, or infinite
    error = error.masked_fill(~(numbers.abs() <= largest_activation(arithmetic)), torch.inf)
    nothing = torch.zeros_like(numbers)
    return Jet(numbers, numbers, nothing, nothing, error, nothing.bool())


def _add(a: Jet, b: Jet, arithmetic: Arithmetic) -> Jet:
    low, high = _out(a.low + b.low, a.high + b.high)
    least, most = _out(a.least + b.least, a.most + b.most)
    made = arithmetic.unit_roundoff * torch.maximum(low.abs(), high.abs())
    return _checked(Jet(low, high, least, most, a.error + b.error + made, a.unsure | b.unsure), arithmetic)


def _neg(a: Jet) -> Jet:
    return Jet(-a.high, -a.low, -a.most, -a.least, a.error, a.unsure)


def _mul(a: Jet, b: Jet, arithmetic: Arithmetic) -> Jet:
    low, high = _times((a.low, a.high), (b.low, b.high))
    first, second = _times((a.least, a.most), (b.low, b.high)), _times((a.low, a.high), (b.least, b.most))
    least, most = _out(first[0] + second[0], first[1] + second[1])
    made = arithmetic.unit_roundoff * torch.maximum(low.abs(), high.abs())
    carried = a.size * b.error + b.size * a.error + a.error * b.error
    return _checked(Jet(low, high, least, most, carried + 2 * made, a.unsure | b.unsure), arithmetic)


def _inverse(a: Jet, arithmetic: Arithmetic) -> Jet:
    crosses = (a.low <= 0) & (a.high >= 0)
    low, high = _out(1 / a.high, 1 / a.low)
    low, high = torch.where(crosses, -torch.inf, low), torch.where(crosses, torch.inf, high)
    square = _times((low, high), (low, high))
    least, most = _times((-square[1], -square[0].clamp(min=0)), (a.least, a.most))
    nearest = torch.minimum(a.low.abs(), a.high.abs()) - a.error
    carried = torch.where((nearest > 0) & ~crosses, a.error / nearest / nearest, torch.inf)
    made = 2 * arithmetic.unit_roundoff * torch.maximum(low.abs(), high.abs())
    return _checked(Jet(low, high, least, most, carried + made, a.unsure), arithmetic)


def _power(a: Jet, exponent: float, arithmetic: Arithmetic) -> Jet:
    whole = float(exponent).is_integer()

    def raised(x: Tensor) -> Tensor:
        return x.pow(exponent) if whole else x.clamp(min=0).pow(exponent)

    ends = raised(a.low), raised(a.high)
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    crosses = (a.low <= 0) & (a.high >= 0)
    if exponent > 0:
        low = torch.where(crosses & (low > 0), 0.0, low)
    low, high = _out(low, high + _LEAST * (high != 0))
    outside = (crosses & (exponent <= 0)) | ((a.low < 0) & (not whole))

    def steep(lower: Tensor, upper: Tensor) -> Ends:
        at = [exponent * (x if whole else x.clamp(min=0)).pow(exponent - 1) for x in (lower, upper)]
        both = torch.minimum(*at), torch.maximum(*at)
        through = (lower <= 0) & (upper >= 0)
        unknown = through & (exponent < 1)
        widest = torch.where(through, torch.minimum(both[0], torch.zeros_like(lower)), both[0])
        least, most = _out(widest, torch.where(through, torch.maximum(both[1], torch.zeros_like(upper)), both[1]))
        unknown = unknown | ((lower < 0) & (not whole))
        return torch.where(unknown, -torch.inf, least), torch.where(unknown, torch.inf, most)

    least, most = _times(steep(a.low, a.high), (a.least, a.most))
    wide = steep(a.low - a.error, a.high + a.error)
    carried = torch.where(a.error > 0, torch.maximum(wide[0].abs(), wide[1].abs()) * a.error, 0.0)
    made = _LIBRARY_ULPS * arithmetic.unit_roundoff * torch.maximum(low.abs(), high.abs())
    low, high = torch.where(outside, -torch.inf, low), torch.where(outside, torch.inf, high)
    return _checked(Jet(low, high, least, most, carried + made, a.unsure), arithmetic)


def _chosen(sure: Tensor, never: Tensor, first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
    """Ends (low, high, ...) of the first where it is sure to be chosen, of the second, or of both."""
    ends = zip(first, second, itertools.cycle((torch.minimum, torch.maximum)))
    return [torch.where(sure, a, torch.where(never, b, either(a, b))) for a, b, either in ends]


def _either(condition: Jet, a: Jet, b: Jet, arithmetic: Arithmetic) -> Jet:
    """a where the condition is positive, b where it is negative; where it may be both, anything between."""
    sure, never = condition.low > 0, condition.high < 0
    close = ~((condition.low > condition.error) | (condition.high < -condition.error))
    wrong = torch.maximum((a.high - b.low).abs(), (b.high - a.low).abs())
    own = torch.where(sure, a.error, torch.where(never, b.error, torch.maximum(a.error, b.error)))
    error = torch.where(close, torch.maximum(a.error, b.error) + wrong, own)
    unsure = torch.where(sure, a.unsure, torch.where(never, b.unsure, True)) | condition.unsure | ~(sure | never)
    return _checked(Jet(*_chosen(sure, never, a[:4], b[:4]), error, unsure), arithmetic)  # pyright: ignore[reportCallIssue]


def _larger(a: Jet, b: Jet, arithmetic: Arithmetic) -> Jet:
    slopes = _chosen(a.low >= b.high, b.low >= a.high, a[2:4], b[2:4])
    ends = torch.maximum(a.low, b.low), torch.maximum(a.high, b.high)
    return _checked(Jet(*ends, *slopes, torch.maximum(a.error, b.error), a.unsure | b.unsure), arithmetic)  # pyright: ignore[reportCallIssue]


_OPERATIONS: dict[str, Callable[..., Jet]] = {
    "add": _add,
    "sub": lambda a, b, arithmetic: _add(a, _neg(b), arithmetic),
    "neg": lambda a, _: _neg(a),
    "mul": _mul,
    "div": lambda a, b, arithmetic: _mul(a, _inverse(b, arithmetic), arithmetic),
    "where": _either,
    "maximum": _larger,
    "minimum": lambda a, b, arithmetic: _neg(_larger(_neg(a), _neg(b), arithmetic)),
}


def _evaluated(term: Term, x: Jet, arithmetic: Arithmetic, known: dict[Term, Jet]) -> Jet:
    """A term on cells."""
    if term in known:
        return known[term]
    parts = [
        _evaluated(part, x, arithmetic, known) if isinstance(part, Term) else _constant(part, x, arithmetic)
        for part in term.parts[: 1 if term.name == "pow" else None]
    ]
    if term.name == "x":
        found = x
    elif term.name in UNARY:
        found = _chained(term.name, parts[0], arithmetic)
    elif term.name == "pow":
        found = _power(parts[0], float(term.parts[1]), arithmetic)
    else:
        found = _OPERATIONS[term.name](*parts, arithmetic)
    known[term] = found
    return found


def _cells(low: float, high: float) -> Tensor:
    """Ends of cells: powers of two, and small steps where most functions bend."""
    powers = 2.0 ** torch.arange(-200, _LARGEST_EXPONENT + 1, dtype=torch.float64)
    steps = torch.arange(-16, 16, 1 / 16, dtype=torch.float64)
    ends = [max(low, -(2.0**_LARGEST_EXPONENT)), min(high, 2.0**_LARGEST_EXPONENT)]
    points = torch.cat(
        [-powers, torch.zeros(1, dtype=torch.float64), powers, steps, torch.tensor(ends, dtype=torch.float64)]
    )
    points = points[(points >= ends[0]) & (points <= ends[1])].unique()
    return torch.stack([points[:-1], points[1:]]) if len(points) > 1 else torch.stack([points, points])


def _on(term: Term, cells: Tensor, arithmetic: Arithmetic, ulps: float) -> Jet:
    dims = [1] * max((part.values.dim() for part in _numbers(term)), default=0)
    low, high = (end.reshape(-1, *dims) for end in cells)
    error = ulps * arithmetic.unit_roundoff * torch.maximum(low.abs(), high.abs())
    ones = torch.ones_like(low)
    start = Jet(low, high, ones, ones, error, torch.zeros_like(low, dtype=torch.bool))
    jet = _evaluated(term, _checked(start, arithmetic), arithmetic, {})
    return Jet(
        *(torch.broadcast_to(part, (cells.shape[1], *part.shape[1:])).reshape(cells.shape[1], -1) for part in jet)
    )


def _numbers(term: Term) -> list[Numbers]:
    found = [part for part in term.parts if isinstance(part, Numbers)]
    return found + [number for part in term.parts if isinstance(part, Term) for number in _numbers(part)]


@functools.lru_cache(maxsize=512)
@torch.no_grad()
def measured(term: Term, low: float, high: float, arithmetic: Arithmetic = FLOAT32, ulps: float = 0.0) -> Measured:
    """What holds for entries in a range, which the program knows up to so many roundings of their size."""
    cells = _cells(low, high)
    for _ in range(22):
        jet = _on(term, cells, arithmetic, ulps)
        middle = (cells.sum(0) / 2).expand(2, -1)
        inside = _on(term, middle, arithmetic, ulps)
        reached = float(inside.steepest.masked_fill(inside.unsure, 0.0).nan_to_num(0.0, 0.0).amax())
        width = cells[1] - cells[0]
        narrow = width <= 2.0**-48 * cells.abs().amax(0) + 1e-55
        again = (jet.steepest.amax(1) > reached * (1 + 1e-4)) & (width > 1e-7 * cells.abs().amax(0) + 1e-30)
        again |= jet.unsure.any(1) & ~narrow
        if not bool(again.any()) or cells.shape[1] + 7 * int(again.sum()) > _CELLS:
            break
        parts = torch.arange(9, dtype=torch.float64) / 8
        edges = cells[0][again, None] + width[again, None] * parts
        edges[:, 8] = cells[1][again]
        cells = torch.cat([cells[:, ~again], torch.stack([edges[:, :-1].flatten(), edges[:, 1:].flatten()])], 1)
    jet = _on(term, cells, arithmetic, ulps)
    jump = (jet.high - jet.low).masked_fill(~jet.unsure, 0.0)
    lipschitz = float(jet.steepest.amax()) * SAFETY
    if not bool((jump <= 2.0**-38 * jet.size + _JUMP).all()) or math.isnan(lipschitz):
        lipschitz = math.inf
    size, error = cells.abs().amin(0), (jet.error + jump).amax(1)
    lost = error.isinf() | error.isnan()
    below = float(size[lost].amin()) if bool(lost.any()) else 2.0**_LARGEST_EXPONENT
    near = (size <= 1) & (size < below)
    far = (size > 1) & (size < below)
    constant = float(error[near].amax()) if bool(near.any()) else 0.0
    slope = float((error[far] / size[far]).amax()) if bool(far.any()) else 0.0
    rounding = RoundingError(slope * SAFETY, (constant if below > 0 else math.inf) * SAFETY)
    return Measured(lipschitz, (float(jet.low.amin()), float(jet.high.amax())), rounding, below)
