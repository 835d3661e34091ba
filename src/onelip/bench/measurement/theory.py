"""The complexity table of the comparison paper, as data and as functions.

A layer maps b images of s x s pixels and c channels to as many, with a k x k kernel and t inner iterations. Each
method lists the costs of the published algorithm and, where onelip computes differently, of its own. Only leading
terms are listed; operations are multiply-accumulates, memory is in numbers kept for the backward pass. Onelip's own are
those of CPUs in training with float32.

A circular convolution with a kernel is applied frequency by frequency for shapes where that is much cheaper. Rows of
such methods are those of the convolution; by frequency their input part costs what that of Cayley does (twice as much
for residual layers), and their parameter part s^2 c^2 k^2 operations and s^2 c^2 numbers more.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from onelip.errors import InvalidInputError
from onelip.layers import list_methods
from onelip.layers.info import Complexity

Source = Literal["published", "onelip"]

COSTS = ("input_macs", "input_memory", "parameter_macs", "parameter_memory")
"""The columns of the table that are expressions."""


@dataclass(frozen=True)
class LayerShape:
    """Batch size b, image side s, channels c, kernel side k, inner iterations t."""

    b: int = 256
    s: int = 32
    c: int = 64
    k: int = 3
    t: int = 10

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise InvalidInputError(f"{field.name} must be a positive number, not {getattr(self, field.name)}")


@dataclass(frozen=True)
class TheoryRow:
    """Costs of one method, as published or as computed by onelip."""

    method: str
    title: str
    source: Source
    costs: Complexity

    def at(self, shape: LayerShape) -> dict[str, float]:
        """The four costs for one layer."""
        return {name: evaluate(getattr(self.costs, name), shape) for name in COSTS}


def theory_table() -> list[TheoryRow]:
    """One row for each published algorithm, followed by onelip's own where it is another."""
    rows: list[TheoryRow] = []
    for method in list_methods():
        rows.append(TheoryRow(method.key, method.title, "published", method.published))
        if method.ours is not None:
            rows.append(TheoryRow(method.key, method.title, "onelip", method.ours))
    return rows


def costs_in_use(method: str) -> TheoryRow:
    """The row that describes what onelip runs for a method: its own algorithm, or the published one."""
    rows = [row for row in theory_table() if row.method == method]
    if not rows:
        raise InvalidInputError(f"there is no method {method!r}, use one of {', '.join(_keys())}")
    return rows[-1]


def _keys() -> list[str]:
    return [method.key for method in list_methods()]


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def evaluate(expression: str, shape: LayerShape) -> float:
    """Value of an expression such as "b*s**2*c/2" for a layer; anything but arithmetic in b, s, c, k, t is refused."""

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if name in {field.name for field in fields(LayerShape)}:
                return getattr(shape, name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case _:
                raise InvalidInputError(f"the cost {expression!r} is not an expression in b, s, c, k, t")

    try:
        body = ast.parse(expression, mode="eval").body
    except SyntaxError:
        raise InvalidInputError(f"the cost {expression!r} is not an expression in b, s, c, k, t") from None
    return value(body)


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

_ABBREVIATIONS = {"b*s**2*c**2*k**2": "C", "b*s**2*c": "M", "c**2*k**2": "P"}
"""The paper's: products of a plain convolution, numbers in its input, numbers in its kernel."""


def pretty(expression: str) -> str:
    """The expression as one reads it: "5*c**2*k**2" becomes "5 P", "c**3*k**4" "c³ k⁴", and "0" a dash."""
    if expression == "0":
        return "-"
    terms = " + ".join(_abbreviated(term) for term in expression.split(" + "))
    return re.sub(r"\*\*(\d+)", lambda match: match[1].translate(_SUPERSCRIPTS), terms).replace("*", " ")


def _abbreviated(term: str) -> str:
    for long, short in _ABBREVIATIONS.items():
        if match := re.fullmatch(rf"(\d+\*)?{re.escape(long)}((?!\*\*|\d).*)", term):
            return f"{match[1] or ''}{short}{match[2]}"
    return term
