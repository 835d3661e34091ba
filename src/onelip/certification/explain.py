"""The graph of a model as a table: what each call does to distances and how much it rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from onelip.certification.bounds import shortened
from onelip.certification.graph import Node, Shape
from onelip.certification.proven_model import trace
from onelip.proofs.layer_bound import FLOAT32

_SHOWN = 4
"""How many kinds of calls are named."""


@dataclass(frozen=True)
class ExplainedNode:
    """One call of a model.

    `constant` is its own Lipschitz constant, `from_input` that of everything up to it, `rounding` how much it rounds in
    float32, relative to the norm of its input (None where that is not declared), `line` the line of the user's code.
    """

    path: str
    operation: str
    line: str
    shape: Shape
    constant: float
    from_input: float
    rounding: float | None
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """All calls in order, which prints as a table of 80 columns, and the proven Lipschitz constant of the model.

    Examples:
        >>> import torch, onelip
        >>> explanation = onelip.explain(torch.nn.Sequential(onelip.create_linear("aol", 4, 3), torch.nn.ReLU()), (4,))
        >>> [node.operation for node in explanation.nodes]
        ['AOLLinear', 'ReLU']
    """

    nodes: tuple[ExplainedNode, ...]
    lipschitz: float
    heaviest: tuple[ExplainedNode, ...] = ()
    """The calls on the way from the output to the input along the largest constants: their product is the model's."""

    def kinds(self) -> list[tuple[str, float, list[ExplainedNode]]]:
        """What the calls of each kind on that way make of it together, and these calls; the largest first."""
        calls: dict[str, list[ExplainedNode]] = {}
        for node in self.heaviest:
            calls.setdefault(node.operation, []).append(node)
        found = [(kind, math.prod(node.constant for node in nodes), nodes) for kind, nodes in calls.items()]
        return sorted(found, key=lambda row: -row[1])

    def expanding(self) -> tuple[ExplainedNode, ...]:
        """The calls with a constant above 1, the largest first: these make the product large."""
        above = (node for node in self.nodes if node.constant > 1 + 1e-6)
        return tuple(sorted(above, key=lambda node: -node.constant))

    def __str__(self) -> str:
        lines = [f"{'node':<22} {'operation':<17} {'output':>11} constant from input float32"]
        for node in self.nodes:
            shape = "x".join(map(str, node.shape)) or "1"
            rounding = "assumed" if node.rounding is None else f"{node.rounding:.1e}" if node.rounding else "exact"
            lines.append(
                f"{shortened(node.path, 22):<22} {shortened(node.operation, 17):<17} {shape:>11} "
                f"{node.constant:>8.4g} {node.from_input:>10.5g} {rounding:>7}"
            )
        lines.append(f"proven Lipschitz constant: {self.lipschitz:.8g}")
        large = [row for row in self.kinds() if row[1] > 1 + 1e-6][:_SHOWN]
        if large and self.lipschitz > 1 + 1e-6:
            lines.append("what makes it large, on the way with the largest constants:")
            lines += [_described(*row) for row in large]
        return "\n".join(lines)


def _described(kind: str, product: float, calls: list[ExplainedNode]) -> str:
    largest = max(calls, key=lambda node: node.constant)
    name = shortened(largest.path, 22)
    if len(calls) == 1:
        return f"  {shortened(kind, 17):<17} 1 call, {name}: {product:.4g}"
    times = f"{len(calls)} calls, together {product:.4g}"
    return f"  {shortened(kind, 17):<17} {times}; the largest, {name}: {largest.constant:.4g}"


def explain(model: nn.Module, input_shape: Any = None) -> Explanation:
    """The graph of a model in evaluation mode, node by node; `print(onelip.explain(model, (3, 32, 32)))`.

    `input_shape` is the same as for `lipschitz_bound`.

    Examples:
        >>> import torch, onelip
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.ReLU())
        >>> print(onelip.explain(model, (3, 2, 2)))
        node  operation...
        proven Lipschitz constant: 1
    """
    graph = trace(model, input_shape)
    explained = {node.index: _explained(node) for node in graph.used() if node.inputs}
    heaviest, node = [], graph.output
    while node.inputs:
        heaviest.append(explained[node.index])
        node = max(node.inputs, key=lambda source: source.lipschitz)
    return Explanation(tuple(explained.values()), graph.output.lipschitz, tuple(heaviest))


def _explained(node: Node) -> ExplainedNode:
    rounding = None if node.rounding is None else node.rounding(FLOAT32).slope * max(node.weighted, default=1.0)
    names = tuple(source.place.path for source in node.inputs)
    place = node.place
    return ExplainedNode(place.path, place.kind, place.line, node.shape, node.constant, node.lipschitz, rounding, names)
