"""Values that are one function of each entry, however many operations they are written with.

x * sigmoid(b * x) is a product of two values that depend on the input, which has no constant in general. So every
operation on entries notes the `Term` that its result is of the value that it began with (`ScalarOf`). Where the rule of
an operation refuses it, or what it was given is unbounded, the whole term is bounded by `intervals`. A value that is
not Lipschitz by itself, x^2, is `Pending`: it is refused if the output depends on it, and forgotten if what is made of
it, sqrt(x^2 + eps), is a function of x again.

A sum of |x|^p is t^p with t the norm of order p, which is 1-Lipschitz for p of at least 2. x * g(t), where t is the
norm of x, has the slopes g(t) and (t g(t))': this bounds RMSNorm and LayerNorm that are written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onelip.certification.graph import Identity, Node, NormOf, Pending, PowerOf, RadialOf, Range, ScalarOf
from onelip.certification.operations.arithmetic import identity_of as identity
from onelip.certification.operations.intervals import UNARY, Measured, Numbers, Term, X, measured
from onelip.certification.operations.numbers import lost_powers
from onelip.certification.operations.registered import Call, entries, operation, second_opinion
from onelip.certification.ranges import EVERYTHING, range_of, widened
from onelip.certification.traced import Comparison, Traced, all_traced
from onelip.proofs.layer_bound import FLOAT32, FLOAT64, Arithmetic, RoundingError
from onelip.proofs.proven import SAFETY

_LARGEST_CONSTANT = 4096
_LARGEST_USEFUL = 2.0**40


def _clamp(x: Any, min: Any = None, max: Any = None) -> Term:
    x = x if min is None else Term("maximum", (x, min))
    return x if max is None else Term("minimum", (x, max))


def _gelu(x: Term, approximate: str = "none") -> Term:
    cube = Term("mul", (0.044715, Term("pow", (x, 3.0))))
    inner = Term("mul", (math.sqrt(2 / math.pi), Term("add", (x, cube))))
    step = Term("tanh", (inner,)) if approximate == "tanh" else Term("erf", (Term("mul", (x, math.sqrt(0.5))),))
    return Term("mul", (Term("mul", (0.5, x)), Term("add", (1.0, step))))


_TERMS: dict[str, Callable[..., Term]] = {
    **{name: lambda x, name=name: Term(name, (x,)) for name in (*UNARY, "neg")},
    **{name: lambda a, b, name=name: Term(name, (a, b)) for name in ("add", "sub", "div", "maximum", "minimum")},
    "rsub": lambda a, b: Term("sub", (b, a)),
    "mul": lambda a, b: Term("pow", (a, 2.0)) if a == b else Term("mul", (a, b)),
    "rtruediv": lambda a, b: Term("div", (b, a)),
    "reciprocal": lambda a: Term("div", (1.0, a)),
    "pow": lambda a, exponent: Term("pow", (a, float(exponent))),
    "square": lambda a: Term("pow", (a, 2.0)),
    "rsqrt": lambda a: Term("div", (1.0, Term("sqrt", (a,)))),
    "abs": lambda a: Term("maximum", (a, Term("neg", (a,)))),
    "relu": lambda a: Term("maximum", (a, 0.0)),
    "relu6": lambda a: _clamp(a, 0.0, 6.0),
    "hardtanh": lambda a, min_val=-1.0, max_val=1.0: _clamp(a, min_val, max_val),
    "clamp": _clamp,
    "clamp_max": lambda a, max: _clamp(a, None, max),
    "silu": lambda a: Term("mul", (a, Term("sigmoid", (a,)))),
    "gelu": _gelu,
    "leaky_relu": lambda a, negative_slope=0.01: Term(
        "add", (Term("maximum", (a, 0.0)), Term("mul", (float(negative_slope), Term("minimum", (a, 0.0)))))
    ),
    "hardsigmoid": lambda a: _clamp(Term("add", (Term("div", (a, 6.0)), 0.5)), 0.0, 1.0),
    "softsign": lambda a: Term("div", (a, Term("add", (1.0, Term("maximum", (a, Term("neg", (a,)))))))),
    "logsigmoid": lambda a: Term("neg", (Term("softplus", (Term("neg", (a,)),)),)),
    "sign": lambda a: Term("where", (a, 1.0, Term("where", (Term("neg", (a,)), -1.0, 0.0)))),
    "where": lambda condition, a, b: Term("where", (condition, a, b)),
}


def scalar_of(x: Traced) -> ScalarOf:
    """What a value is a function of: itself, if nothing else is known."""
    return x.node.fact(ScalarOf) or ScalarOf(x.node, X)


def _part(value: Any, bases: list[Node], x: Traced) -> Any:
    """A term or a number; `bases` collects what terms are of."""
    if isinstance(value, Traced):
        if value.shape != x.shape:
            raise _NoTermError
        found = scalar_of(value)
        bases.append(found.base)
        return found.term
    if isinstance(value, Comparison):
        parts = [_part(part, bases, x) for part in (value.first, value.second)]
        return Term("sub", tuple(parts if value.greater else parts[::-1]))
    if isinstance(value, Tensor):
        return _spread(value, x)
    if isinstance(value, bool | int | float):
        return float(value)
    if value is None or isinstance(value, str):
        return value
    raise _NoTermError


def _spread(value: Tensor, x: Traced) -> Any:
    if not value.is_floating_point() and value.dtype != torch.bool and value.dim():
        raise _NoTermError
    if value.numel() and bool((value == value.flatten()[0]).all()):
        return float(value.flatten()[0])
    shape = torch.broadcast_shapes(value.shape, x.shape)
    if shape != x.shape or (value.dim() == x.dim() and value.shape[0] != 1) or value.numel() > _LARGEST_CONSTANT:
        raise _NoTermError
    return Numbers(value.reshape(value.shape[1:] if value.dim() == x.dim() else value.shape))


class _NoTermError(Exception):
    """An operation is no function of entries."""


def _term(name: str, arguments: Sequence[Any], keywords: dict[str, Any]) -> tuple[Node, Term, Traced] | None:
    compared = [place for place, part in enumerate(arguments) if isinstance(part, Comparison)]
    if name not in _TERMS or (compared and not (name in ("mul", "where") and compared == compared[:1])):
        return None
    if compared and name == "where" and compared != [0]:
        return None
    values = [part.first if isinstance(part, Comparison) else part for part in arguments]
    found = next((x for x in values if isinstance(x, Traced)), None)
    if found is None:
        return None
    bases: list[Node] = []
    try:
        given = [_part(part, bases, found) for part in arguments]
        if name == "mul" and any(isinstance(part, Comparison) for part in arguments):
            place = next(number for number, part in enumerate(arguments) if isinstance(part, Comparison))
            term = Term("where", (given[place], given[1 - place], 0.0))
        else:
            term = _TERMS[name](*given, **{key: _part(part, bases, found) for key, part in keywords.items()})
    except (_NoTermError, TypeError, ValueError, RuntimeError):
        return None
    if not isinstance(term, Term) or len({identity(base) for base in bases}) != 1 or _depth(term) > 40:
        return None
    return bases[0], term, found


def _depth(term: Term) -> int:
    return 1 + max((_depth(part) for part in term.parts if isinstance(part, Term)), default=0)


@second_opinion
def scalar_function(
    call: Call, name: str, arguments: Sequence[Any], keywords: dict[str, Any], found: Any, refused: Exception | None
) -> Any:
    """The value of an operation as a function of entries, where its own rule refuses it or is not as good."""
    traced = list(all_traced((arguments, keywords)))
    if "out" in keywords or any(x.before is not None for x in traced):
        return found
    pending = any(x.node.fact(Pending) for x in traced)
    if refused is None and not isinstance(found, Traced):
        return found
    written = _term(name, arguments, keywords)
    if written is None:
        if refused is None or len(arguments) != 2:
            return found
        return _radial(call, name, arguments, refused)
    base, term, x = written
    compared = sum(isinstance(part, Traced) for part in arguments) > 1
    if refused is None and not pending and not compared:
        _note(found, base, term, x)
        return found
    bound = _bound(base, term)
    if refused is None and not pending and bound.lipschitz * base.lipschitz >= found.node.lipschitz:
        _note(found, base, term, x)
        return found
    value = found.value if isinstance(found, Traced) else _computed(call, name, arguments, keywords)
    facts = (ScalarOf(base, term), *_power(name, arguments, x))
    reason = refused or next((fact.error for one in traced if (fact := one.node.fact(Pending))), None)
    return _result(call, base, x, value, bound, facts, term, reason)


def _power(name: str, arguments: Sequence[Any], x: Traced) -> tuple[PowerOf, ...]:
    """x^p as such: sums of these are powers of norms."""
    same = name == "mul" and len({id(part.node) for part in arguments if isinstance(part, Traced)}) == 1
    exponent = 2.0 if name == "square" or (same and all(isinstance(part, Traced) for part in arguments)) else None
    if name == "pow" and isinstance(arguments[1], int | float):
        exponent = float(arguments[1])
    if exponent is None or exponent < 2 or (exponent % 2 and range_of(x.node)[0] < 0):
        return ()
    if x.node.norm is None:
        x.node.norm = x.norms()
    return (PowerOf(x.node, exponent),)


def _note(found: Traced, base: Node, term: Term, x: Traced) -> None:
    if found.shape == x.shape and found.before is None and not found.node.fact(ScalarOf) and found.node is not x.node:
        if base.norm is None and base is x.node:
            base.norm = x.norms()
        if base.norm is not None:
            found.node.facts = (*found.node.facts, ScalarOf(base, term))


def _ends(base: Node, term: Term) -> tuple[Range, float]:
    """Where a term is looked at, and how far errors may take the program's values beyond the range of the base."""
    (low, high), (wide, more) = range_of(base), widened(range_of(base))
    same = measured(term, *wide).lipschitz == measured(term, low, high).lipschitz
    return ((low, high), math.inf) if same or base.fact(NormOf) else (wide, more / 2)


def _bound(base: Node, term: Term) -> Measured:
    norm = base.fact(NormOf)
    return measured(term, *_ends(base, term)[0], FLOAT32, 0.0 if norm is None else norm.ulps)


def _computed(call: Call, name: str, arguments: Sequence[Any], keywords: dict[str, Any]) -> Tensor:
    """The value in float64."""

    def plain(part: Any) -> Any:
        if isinstance(part, Comparison):
            first, second = plain(part.first), plain(part.second)
            return first > second if part.greater else first < second
        if isinstance(part, Traced):
            return part.value
        return part.detach().double() if isinstance(part, Tensor) and part.is_floating_point() else part

    given = [plain(part) for part in arguments]
    if name == "where":
        given = [given[0], *(torch.as_tensor(part, dtype=torch.float64) for part in given[1:])]
    if name in ("rsub", "rtruediv"):
        given = given[::-1]
    function: Any = getattr(torch, {"rsub": "sub", "rtruediv": "div"}.get(name, name))
    if not isinstance(given[0], Tensor):
        given[0] = torch.as_tensor(given[0], dtype=torch.float64)
    return function(*given, **{key: plain(part) for key, part in keywords.items()})


def _result(
    call: Call,
    base: Node,
    x: Traced,
    value: Tensor,
    bound: Measured,
    facts: tuple[Any, ...],
    term: Term,
    reason: Any,
    *,
    ends: Range | None = None,
    ulps: float = 0.0,
    rows: int = 0,
) -> Traced:
    """A node behind the base, whatever lies between; errors are those of the term, of each entry or of each row."""
    if base.norm is None:
        if base is not x.node:
            raise call.refused("its input was overwritten")
        base.norm = x.norms()
    count, ((low, high), margin) = rows or entries(value), _ends(base, term) if ends is None else (ends, math.inf)
    norm = base.fact(NormOf)
    known = ulps if norm is None or rows else norm.ulps

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        found = measured(term, low, high, arithmetic, known).rounding
        return RoundingError(found.slope, found.constant * math.sqrt(count) * SAFETY)

    handle = Traced(call.tracer, base, value)
    useful = bound.lipschitz <= _LARGEST_USEFUL
    slope, reached = bound.lipschitz if useful else math.inf, bound.range
    result = call.add([(handle, slope)], value, rounding, facts=facts, weighted=(1.0,), limits=lambda _: reached)
    result.node.margin = margin
    result.node.exact_offset = 0.0 if rows else _at_zero(term) * math.sqrt(count)
    limits32, limits64 = (
        measured(term, low, high, arithmetic, known).entries_below for arithmetic in (FLOAT32, FLOAT64)
    )
    between = 2.0**101  # too large for float32, not for float64
    result.node.peak = lambda size: torch.where(
        size <= limits32, 0.0, torch.where(size <= limits64, between, torch.inf)
    )
    if not useful:
        why = reason or call.tracer.unbounded(call.place)
        result.node.facts = (*result.node.facts, Pending(why))
    return result


def _at_zero(term: Term) -> float:
    found = measured(term, 0.0, 0.0).range
    largest = max(abs(found[0]), abs(found[1]))
    return largest if math.isfinite(largest) else 0.0


# Norms and what is made of them


def _radial(call: Call, name: str, arguments: Sequence[Any], refused: Exception) -> Any:
    """x * g(t) or x / g(t) with the norm t of x."""
    first, second = arguments
    if name not in ("mul", "div") or not (isinstance(first, Traced) and isinstance(second, Traced)):
        return None
    divided = name == "div"
    for x, factor in ((first, second), (second, first)) if not divided else ((first, second),):
        scalar, before = scalar_of(factor), x.node.fact(RadialOf)
        norm: NormOf | None = scalar.base.fact(NormOf)
        source = x.node if before is None else before.base
        if norm is None or norm.order != 2 or norm.source != identity(source) or factor.dim() != x.dim():
            continue
        if before is not None and before.dims != norm.dims:  # a function of two norms
            continue
        if any(factor.shape[d] != (1 if d in norm.dims else x.shape[d]) for d in range(x.dim())):
            continue
        g = Term("div", (1.0, scalar.term)) if divided else scalar.term
        together = Term("mul", (X if before is None else before.whole, g))
        g = g if before is None else Term("mul", (before.term, g))
        ends = max(0.0, range_of(scalar.base)[0]), range_of(scalar.base)[1]
        alone, whole = (measured(term, *ends, FLOAT32, norm.ulps) for term in (g, together))
        largest = max(abs(alone.range[0]), abs(alone.range[1]))
        steepest = max(largest * SAFETY, whole.lipschitz)
        bound = Measured(steepest, EVERYTHING, whole.rounding, whole.entries_below)
        value = first.value / second.value if divided else first.value * second.value
        rows = factor.numel() // len(factor) if len(factor) else 1
        facts = (RadialOf(source, norm.dims, g, together),)
        return _result(call, source, x, value, bound, facts, together, refused, ends=ends, ulps=norm.ulps, rows=rows)
    return None


def norm_fact(x: Traced, result: Traced, order: float, dims: Sequence[int], ulps: float) -> Traced:
    """Note that a value is the norm of another along dimensions."""
    key = identity(x.node)
    fact = NormOf(key, float(order), tuple(sorted(dims)), ulps)
    result.node.facts = (*result.node.facts, fact, Identity(("norm", *fact[:3])))
    return result


def sum_of_powers(call: Call, x: Traced, value: Tensor, dims: Sequence[int], count: int) -> Traced | None:
    """A sum of |x|^p, or `count` times a mean of it: t^p with t the norm of order p, and t is 1-Lipschitz."""
    found, pending = x.node.fact(PowerOf), x.node.fact(Pending)
    if found is None or pending is None:
        return None
    base, exponent = found
    length = math.prod(x.shape[d] for d in dims)
    ulps = 4.0 * length + 64
    t = (value * count).clamp(min=0).pow(1 / exponent)
    low, high = range_of(base)
    least = max(low, 0.0) * length ** (1 / exponent) * (1 - 2.0**-40)
    most = max(abs(low), abs(high)) * length ** (1 / exponent) * (1 + 2.0**-40)

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        lost = lost_powers(length, arithmetic, entries(t), exponent)
        return RoundingError(ulps * arithmetic.unit_roundoff, lost * SAFETY)

    handle = Traced(call.tracer, base, x.value)
    norm = call.add([(handle, 1.0)], t, rounding, weighted=(1.0,), limits=lambda _: (least, most))
    norm.node.peak = lambda size: size.pow(exponent)
    key = NormOf(identity(base), exponent, tuple(sorted(dims)), ulps)
    norm.node.facts = (*norm.node.facts, key, Identity(("norm", *key[:3])))
    norm.node.norm = norm.norms()
    term = Term("pow", (X, exponent))
    term = term if count == 1 else Term("div", (term, float(count)))
    return _result(
        call, norm.node, norm, value, _bound(norm.node, term), (ScalarOf(norm.node, term),), term, pending.error
    )


@operation("sign", "sgn")
def sign(call: Call, input: Traced) -> Traced:
    """It jumps, unless a product with it does not."""
    raise call.refused("it jumps, so that it has no Lipschitz constant; use hardtanh")
