"""The complexity table of the comparison paper, as data and as functions.

A layer maps b images of s x s pixels and c channels to as many, with a k x k kernel and t inner iterations. Each
method lists the costs of the published algorithm and, where onelip computes differently, of its own. Only leading
terms are listed; operations are multiply-accumulates, memory is in numbers kept for the backward pass. Onelip's own are
those of CPUs in training with float32. Nothing here needs torch.

A circular convolution with a kernel is applied frequency by frequency for shapes where that is much cheaper. Rows of
such methods are those of the convolution; by frequency their input part costs what that of Cayley does (twice as much
for residual layers), and their parameter part s^2 c^2 k^2 operations and s^2 c^2 numbers more.
"""

from __future__ import annotations

import ast
import csv
import functools
import operator
import re
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import onelip
from onelip.errors import InvalidInputError
from onelip.protocol import NOT_GIVEN, WIDTHS, Complexity

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
        """Those of the four costs that are given, for one layer."""
        formulas = {name: getattr(self.costs, name) for name in COSTS}
        return {name: evaluate(formula, shape) for name, formula in formulas.items() if formula != NOT_GIVEN}


def theory_table() -> list[TheoryRow]:
    """One row for each published algorithm, followed by onelip's own where it is another."""
    rows: list[TheoryRow] = []
    for method in method_keys():
        costs = _costs().get(method, {})
        rows.append(TheoryRow(method, "published", costs.get("published", Complexity())))
        if "ours" in costs:
            rows.append(TheoryRow(method, "onelip", costs["ours"]))
    return rows


@functools.cache
def method_keys() -> tuple[str, ...]:
    """Keys of all methods in alphabetical order, by their sources, without an import of torch."""
    folder = Path(onelip.__file__).parent / "layers" / "methods"
    sources = [file.read_text("utf-8") for file in folder.glob("[a-z]*.py")]
    found = (re.search(r"^METHOD = .*?\bkey=\"(\w+)\"", source, re.DOTALL | re.MULTILINE) for source in sources)
    return tuple(sorted(match[1] for match in found if match))


@functools.cache
def _costs() -> dict[str, dict[str, Complexity]]:
    """`costs.toml`: published and ours by key of the method. A method that is not in there has no costs given."""
    text = resources.files("onelip.bench.paper").joinpath("costs.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text).items()
    return {key: {name: Complexity(**costs) for name, costs in both.items()} for key, both in tables}


def published_costs(method: str) -> Complexity:
    """Costs of a method's published algorithm."""
    return next(row.costs for row in theory_table() if row.method == method)


def costs_in_use(method: str) -> TheoryRow:
    """The row that describes what onelip runs for a method: its own algorithm, or the published one."""
    return [row for row in theory_table() if row.method == method][-1]


@dataclass(frozen=True)
class CountedCosts:
    """Multiply-accumulates of the forward pass, and numbers (of float32) kept for the backward pass.

    `parameter_memory` holds the parameters, what autograd keeps of their transformation, and its result;
    `input_memory` what autograd keeps of the input transformation, and the output, but not the input.
    `by_frequency` says that the layer applies its kernel frequency by frequency, because that is cheaper for this
    shape; the formulas of such methods are those of the convolution.
    """

    input_macs: int
    input_memory: int
    parameter_macs: int
    parameter_memory: int
    by_frequency: bool


@functools.cache
def known_counts() -> dict[str, CountedCosts]:
    """What was counted of onelip's methods for the usual `LayerShape()`, by benchmarks/counted_costs.py."""
    text = resources.files("onelip.bench.paper").joinpath("counted_costs.csv").read_text(encoding="utf-8")
    return {
        row.pop("method"): CountedCosts(
            by_frequency=row.pop("by_frequency") == "1", **{name: int(value) for name, value in row.items()}
        )
        for row in csv.DictReader(text.splitlines())
    }


_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def evaluate(expression: str, shape: LayerShape) -> float:
    """Value of an expression such as "b*s**2*c/2" for a layer; anything but arithmetic in b, s, c, k, t is refused."""
    sizes = asdict(shape)

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.Name(id=name) if name in sizes:
                return float(sizes[name])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](value(left), value(right))
        raise InvalidInputError(f"the cost {expression!r} is not an expression in b, s, c, k, t")

    try:
        return float(value(ast.parse(expression, mode="eval").body))
    except SyntaxError as error:
        raise InvalidInputError(f"the cost {expression!r} is not an expression in b, s, c, k, t") from error


PUBLISHED_ITERATIONS = {"bcop": 20, "lot": 10, "soc": 5}
"""Inner iterations t that the comparison paper trains with."""


def published_training_memory(method: str, size: str, image_size: int, batch: int = 256) -> float:
    """Bytes that the published formulas give for the paper's network in training: all layers, float32."""
    costs, steps = published_costs(method), PUBLISHED_ITERATIONS.get(method, 1)
    blocks, channels = image_size.bit_length() - 1, WIDTHS[size] * 32 // max(32, image_size)
    layers = [(1, LayerShape(batch, image_size, channels, 1, steps))]
    for block in range(blocks):
        kernel = 1 if block == blocks - 1 else 3
        layers.append((5, LayerShape(batch, image_size >> block, channels << block, kernel, steps)))
    layers.append((1, LayerShape(batch, 1, channels << blocks, 1, steps)))
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
