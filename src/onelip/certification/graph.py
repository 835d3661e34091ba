"""The computation of a model as a directed graph: a node is one call, of a layer, of a function or of an operator.

For two inputs x and x' of the model, node n takes values that differ by d_n with ||d_n|| <= lipschitz_n ||x - x'||.
How a node's difference follows from those of its inputs is one of two inequalities,

    ||d_n|| <= sum_i c_i ||d_i||                       (an addition, and everything with one input)
    ||d_n||^2 <= sum_i c_i^2 ||d_i||^2                 (`joint`: entries side by side, or the larger of two)

and the same inequality carries rounding errors from the inputs to the node. A module that is used twice is two nodes,
and a value that is copied by a broadcast counts sqrt(copies) in c_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from onelip.proofs.layer_bound import Arithmetic, Peak, Rounding, RoundingError
from onelip.proofs.proven import SAFETY

Range = tuple[float, float]
"""The smallest and the largest number that an entry can be, in exact arithmetic."""

SMALLEST_SQUARE = 2.0**-500
"""Squares of constants below it count as much: the product of two is a float still, and not 0."""

Shape = tuple[int, ...]
"""The shape of one input or activation, without the batch."""


def exactly(_: Arithmetic) -> RoundingError:
    """The rounding of what only moves, selects, negates or compares entries."""
    return RoundingError(0.0, 0.0)


class CallSite(NamedTuple):
    """Where a call stands: its name in the model, what is called, and the line of the user's code."""

    path: str
    kind: str
    line: str

    def words(self) -> str:
        """For error messages: 'layer3.0.norm' (LayerNorm, net.py line 12)."""
        inside = ", ".join(part for part in (self.kind, self.line) if part)
        return f"{self.path!r} ({inside})" if self.path else inside


class Moved(NamedTuple):
    """Every entry is one of the inputs' or a constant. `indices(i)`: which of input i's each one is, -1 if none."""

    indices: Callable[[int], Tensor]


class Extremum(NamedTuple):
    """The larger or the smaller of two values, entry by entry."""

    which: Literal["max", "min"]


class Entrywise(NamedTuple):
    """Each entry is a function of the entry at the same place."""


class AffineHead(NamedTuple):
    """An affine map of features: rows (out, in) and bias (out,) in float64."""

    rows: Tensor
    bias: Tensor


class EntrywiseAffine(NamedTuple):
    """factor * value + shift, entry by entry with numbers of the shape of the value, in `roundings` steps."""

    factor: Tensor
    shift: Tensor
    roundings: int


class Rows(NamedTuple):
    """Row i is sum_t base[start_t + i] @ matrices_t[i], or base[start + i] itself, plus constants of a norm `shift`.

    Rows are the places before the batch, and i counts those of the value.
    """

    base: Node
    terms: tuple[tuple[int, Tensor | None], ...]
    shift: float


class Jumps(NamedTuple):
    """The program jumps by so much, which counts as rounding in radii; a Lipschitz constant it has none."""

    by: float


class ScalarOf(NamedTuple):
    """Each entry is a function of the entry of `base` at the same place: a `Term` of `operations.intervals`."""

    base: Node
    term: Any


class RadialOf(NamedTuple):
    """base * g(t), with a term g of the norm t of the base along these dimensions, and t g(t) as it is computed."""

    base: Node
    dims: tuple[int, ...]
    term: Any
    whole: Any


class NormOf(NamedTuple):
    """The norm of a value, known by its `Identity`, of an order and along dimensions, up to `ulps` of itself."""

    source: Any
    order: float
    dims: tuple[int, ...]
    ulps: float


class PowerOf(NamedTuple):
    """|base|^exponent, entry by entry."""

    base: Node
    exponent: float


class Identity(NamedTuple):
    """Equal keys: the same function of the input."""

    key: Any


class Pending(NamedTuple):
    """It has no constant, and is refused with this error if the output depends on it."""

    error: Exception


Fact = tuple[Any, ...]
"""What else is known about a node, from which bounds of several nodes together are made."""


class Storage:
    """The memory behind a value and its views: a write through one of them makes the others stale."""

    def __init__(self) -> None:
        self.version = 0


class MeasuredError(NamedTuple):
    """Bounds (batch,) of what a call rounds at the batch's own inputs, in this arithmetic."""

    errors: Tensor
    arithmetic: Arithmetic


@dataclass(eq=False)
class Node:
    """One call. `norm` bounds the norms of the batch's activations from above; it is known where rounding needs it."""

    index: int
    place: CallSite
    shape: Shape
    inputs: tuple[Node, ...]
    coefficients: tuple[float, ...]
    joint: bool
    rounding: Rounding | None
    lipschitz: float = 1.0
    facts: tuple[Fact, ...] = ()
    storage: Storage = field(default_factory=Storage)
    version: int = 0
    norm: Tensor | None = None
    weighted: tuple[float, ...] = ()
    """Rounding is slope * sum_i weighted_i ||input_i|| + constant."""
    measured: MeasuredError | None = None
    limits: Callable[[Sequence[Range]], Range] | None = None
    """Where its entries are, from where those of its inputs are: see `ranges`."""
    known_range: tuple[Any, Range] | None = None
    """What `ranges` found, with the `limits` that it is of."""
    margin: float = math.inf
    """The largest error of its input for which its constant holds."""
    peak: Peak | None = None
    exact_offset: float = 0.0
    value: Tensor | None = None
    """The activations, where the tracer was asked to keep them."""
    run: Callable[[Tensor], Tensor] | None = None
    """The call as a function of its only input, where the tracer was asked to keep it."""
    has_parameters: bool = False

    def fact(self, kind: type[Any]) -> Any:
        """The fact of this kind, or None."""
        return next((fact for fact in self.facts if isinstance(fact, kind)), None)

    @property
    def rounds_nothing(self) -> bool:
        """Whether the call is exact in every arithmetic."""
        return self.rounding is exactly

    @property
    def constant(self) -> float:
        """How much larger its differences can be than those of its inputs: for one input, its Lipschitz constant."""
        largest = max((node.lipschitz for node in self.inputs), default=1.0)
        if len(self.inputs) == 1:
            return self.coefficients[0]
        return self.lipschitz / largest if largest > 0 else 0.0


@dataclass(frozen=True)
class Graph:
    """All nodes in the order of their calls, the input first, and the node whose value the model returns."""

    nodes: tuple[Node, ...]
    output: Node

    def used(self) -> tuple[Node, ...]:
        """The nodes that the output depends on, in order."""
        needed: set[int] = set()
        pending = [self.output]
        while pending:
            node = pending.pop()
            if node.index not in needed:
                needed.add(node.index)
                pending.extend(node.inputs)
        return tuple(node for node in self.nodes if node.index in needed)

    def calls(self) -> list[tuple[object, ...]]:
        """What is called on what: equal for two traces of one program. Where values lie in memory does not matter."""
        numbers: dict[int, int] = {}
        found: list[tuple[object, ...]] = []
        for node in self.nodes:
            sources = [numbers[source.index] for source in node.inputs]
            if node.place.kind == "contiguous":
                numbers[node.index] = sources[0]
                continue
            numbers[node.index] = len(found)
            found.append((node.place, node.shape, node.coefficients, node.lipschitz, sources))
        return found


def repeat_rows(node: Node, rows: int) -> None:
    """Make a node that was told of one row one of so many, side by side."""
    node.shape, rounding = (rows, *node.shape), node.rounding
    kept: list[Fact] = []
    for fact in node.facts:
        if isinstance(fact, Moved):
            kept.append(Moved(partial(_indices_in_rows, node, fact, rows)))
        elif isinstance(fact, EntrywiseAffine):
            kept.append(EntrywiseAffine(fact.factor[:0], fact.shift[:0], fact.roundings))
        elif not isinstance(fact, AffineHead | Rows):
            kept.append(fact)
    node.facts = tuple(kept)
    if rounding is None or rounding is exactly:
        return

    def repeated(arithmetic: Arithmetic) -> RoundingError:
        error = rounding(arithmetic)
        return RoundingError(error.slope, error.constant * math.sqrt(rows) * SAFETY)

    node.rounding = repeated


def _indices_in_rows(node: Node, moved: Moved, rows: int, position: int) -> Tensor:
    index, count = moved.indices(position), math.prod(node.inputs[position].shape) // rows
    return torch.cat([torch.where(index < 0, index, index + row * count) for row in range(rows)])


def product_bound(factors: Sequence[float]) -> float:
    """Product of constants, rounded upwards; factors of exactly 1 change nothing, and 0 times anything is 0."""
    inexact = [factor for factor in factors if factor != 1.0]
    if any(factor == 0 for factor in inexact):
        return 0.0
    return max(math.prod(inexact), SMALLEST_SQUARE**2) * SAFETY if len(inexact) > 1 else math.prod(inexact)


def sum_bound(terms: Sequence[float]) -> float:
    """Sum of non-negative numbers, rounded upwards."""
    present = [term for term in terms if term != 0]
    return math.fsum(present) * (1.0 if len(present) <= 1 else SAFETY)


def square_bound(number: float) -> float:
    """The square of a non-negative number; upwards where that would be no float, or lose the number."""
    if number == 0:
        return 0.0
    return math.inf if number > 2.0**500 else max(number, SMALLEST_SQUARE**0.5) ** 2


def root_bound(squares: Sequence[float]) -> float:
    """Root of a sum of numbers given by their squares, rounded upwards; the root of one is exact."""
    total = math.fsum(squares)
    return 1.0 if total == 1.0 else math.sqrt(total) * SAFETY
