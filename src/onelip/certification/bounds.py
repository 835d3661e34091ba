"""Proven upper bounds of the Lipschitz constants of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from onelip.certification.graph import Shape
from onelip.certification.outputs import Output, with_output
from onelip.certification.proven_model import trace


@dataclass(frozen=True)
class LayerRow:
    """One line of the table of bounds: a node, its constant, and that from the input up to it."""

    path: str
    kind: str
    output_shape: Shape
    lipschitz: float
    product: float


def shortened(name: str, width: int) -> str:
    """The end of a name that is too long for its column: what tells places in a model apart."""
    return name if len(name) <= width else "…" + name[1 - width :]


def _digits(constant: float) -> str:
    """All that matters of a constant near 1, four digits of others."""
    return f"{constant:.7g}" if 1 <= constant < 10 else f"{constant:.4g}"


class LipschitzTable(list[LayerRow]):
    """The rows, which print as a table of 80 columns."""

    def __str__(self) -> str:
        lines = [f"{'node':<26} {'operation':<20} {'output':>11} {'constant':>9} {'from input':>10}"]
        for row in self:
            shape = "x".join(map(str, row.output_shape))
            names = f"{shortened(row.path, 26):<26} {shortened(row.kind, 20):<20}"
            lines.append(f"{names} {shape:>11} {_digits(row.lipschitz):>9} {_digits(row.product):>10}")
        return "\n".join(lines)


def lipschitz_table(model: nn.Module, input_shape: Any = None) -> LipschitzTable:
    """The proven bound of every node of a model in evaluation mode, and that from the input up to it.

    Examples:
        >>> import torch, onelip
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), onelip.create_linear("aol", 12, 3))
        >>> print(onelip.lipschitz_table(model, (3, 2, 2)))
        node...
    """
    nodes = trace(model, input_shape).used()
    return LipschitzTable(
        LayerRow(node.place.path, node.place.kind, node.shape, node.constant, node.lipschitz)
        for node in nodes
        if node.inputs
    )


def lipschitz_bound(model: nn.Module, input_shape: Any = None, *, output: Output | None = None) -> float:
    """Proven upper bound of the Lipschitz constant of a model in evaluation mode, for inputs of one shape.

    `input_shape` is the shape of one input without the batch, such as (3, 32, 32); by default `model.input_shape`. For
    several arguments it is a tuple or a dictionary of shapes, or an example of what `certify` takes. `output` says
    which part of what the model returns counts, as in `certify`. An operation without a known bound raises
    `UnknownLipschitzConstant`, which names its place.

    Examples:
        >>> import onelip
        >>> from onelip.layers import AOLConv2d
        >>> onelip.lipschitz_bound(AOLConv2d(2, 4, 3), (2, 8, 8)) <= 1 + 1e-6
        True
    """
    return trace(with_output(model, output, None), input_shape).output.lipschitz
