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

import re
from dataclasses import asdict, dataclass
from typing import Literal

import sympy  # comes with torch

from onelip.errors import InvalidInputError
from onelip.layers import get_method, list_methods
from onelip.layers.info import Complexity
from onelip.models.config import ConvNetConfig

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
        for name, value in asdict(self).items():
            if value < 1:
                raise InvalidInputError(f"{name} must be a positive number, not {value}")


@dataclass(frozen=True)
class TheoryRow:
    """Costs of one method, as published or as computed by onelip."""

    method: str
    source: Source
    costs: Complexity

    def at(self, shape: LayerShape) -> dict[str, float]:
        """The four costs for one layer."""
        return {name: evaluate(getattr(self.costs, name), shape) for name in COSTS}


def theory_table() -> list[TheoryRow]:
    """One row for each published algorithm, followed by onelip's own where it is another."""
    rows: list[TheoryRow] = []
    for method in list_methods():
        rows.append(TheoryRow(method.key, "published", method.published))
        if method.ours is not None:
            rows.append(TheoryRow(method.key, "onelip", method.ours))
    return rows


def costs_in_use(method: str) -> TheoryRow:
    """The row that describes what onelip runs for a method: its own algorithm, or the published one."""
    key = get_method(method).key
    return [row for row in theory_table() if row.method == key][-1]


def evaluate(expression: str, shape: LayerShape) -> float:
    """Value of an expression such as "b*s**2*c/2" for a layer; anything but arithmetic in b, s, c, k, t is refused."""
    sizes = asdict(shape)
    try:
        formula = sympy.parse_expr(expression, {name: sympy.Symbol(name) for name in sizes})
        return float(formula.subs(sizes))
    except (SyntaxError, AttributeError, TypeError) as error:
        raise InvalidInputError(f"the cost {expression!r} is not an expression in b, s, c, k, t") from error


PUBLISHED_ITERATIONS = {"bcop": 20, "lot": 10, "soc": 5}
"""Inner iterations t that the comparison paper trains with."""


def published_training_memory(method: str, size: str, image_size: int, batch: int = 256) -> float:
    """Bytes that the published formulas give for the paper's network in training: all layers, float32."""
    config = ConvNetConfig(method=method, size=size, num_classes=10, input_size=image_size)
    costs, steps = get_method(method).published, PUBLISHED_ITERATIONS.get(method, 1)
    layers = [(1, LayerShape(batch, image_size, config.channels, 1, steps))]
    for block in range(config.num_blocks):
        kernel = 1 if block == config.num_blocks - 1 else config.kernel_size
        layers.append((5, LayerShape(batch, image_size >> block, config.channels << block, kernel, steps)))
    layers.append((1, LayerShape(batch, 1, config.features, 1, steps)))
    formulas = costs.input_memory, costs.parameter_memory
    return 4 * sum(count * evaluate(formula, shape) for count, shape in layers for formula in formulas)


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

_ABBREVIATIONS = {"b*s**2*c**2*k**2": "C", "b*s**2*c": "M", "c**2*k**2": "P"}
"""The paper's: products of a plain convolution, numbers in its input, numbers in its kernel."""


def pretty(expression: str) -> str:
    """The expression as one reads it: "5*c**2*k**2" becomes "5 P", "c**3*k**4" "c³ k⁴", and "0" a dash."""
    if expression == "0":
        return "-"
    terms = expression.split(" + ")
    for long, short in _ABBREVIATIONS.items():
        pattern = re.compile(rf"(\d+\*)?{re.escape(long)}((?!\*\*|\d).*)")
        terms = [pattern.sub(rf"\g<1>{short}\g<2>", term) if pattern.fullmatch(term) else term for term in terms]
    text = re.sub(r"\*\*(\d+)", lambda match: match[1].translate(_SUPERSCRIPTS), " + ".join(terms))
    return text.replace("*", " ")
