"""What certificates say of a converted graph: which operations multiply distances, and which have no bound.

The graph runs under the tracer of `certify`, node by node, so that both read one table. Layers whose constant is 1 by
construction are not proven here, which would take long: values of their shape stand for them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx, nn

from onelip.certification.call_arguments import Arguments
from onelip.certification.graph import Node
from onelip.certification.leaves import Proofs
from onelip.certification.precision import ieee_arithmetic
from onelip.certification.program import program_dtype
from onelip.certification.traced import Traced, all_traced
from onelip.certification.tracing import Tracer
from onelip.errors import InvalidInputError
from onelip.layers.layer import LipschitzLayer

_LARGEST = 64.0
"""Constants that an operation is divided by; beyond, nothing is left of what it computes."""
_SLACK = 1e-6


class _Stub(nn.Module):
    """A value of a shape, with the constant 1."""

    lipschitz_constant = 1.0

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, ...) to (batch, *shape)."""
        return x.flatten(1).sum(1).reshape(-1, *[1] * len(self.shape)).expand(-1, *self.shape)


class Audit(fx.Interpreter):
    """One walk after the other, until none meets an operation without a bound that is not in `failures`.

    `constants` has the operations that would be followed by a division: all with a constant above 1, and means, of
    which the constant may be below. Nodes that are `known` to fail are passed over.
    """

    def __init__(self, model: fx.GraphModule, known: set[fx.Node], means: set[fx.Node]) -> None:
        super().__init__(model, garbage_collect_values=False)
        self.extra_traceback = False
        self.known, self.means = set(known), means
        self.failures: dict[fx.Node, str] = {}
        self.constants: dict[fx.Node, float] = {}
        self._current: fx.Node | None = None
        self._input: Any = None

    def walk(self, example: Arguments) -> None:
        """Fill `failures` and `constants`."""
        zeros = tuple(torch.zeros_like(tensor, dtype=torch.float64) for tensor in example.tensors)
        arguments = Arguments(example.form, zeros).part(slice(2))
        walk = _Walk(self).eval()
        with torch.no_grad(), ieee_arithmetic():
            while True:
                self.constants.clear()
                try:
                    Tracer(walk, Proofs(), program_dtype(self.module)).run(arguments)
                except Exception as error:  # whatever a rule or the model's own code raises
                    node = self._current
                    if node is None or node in self.failures:
                        return
                    text = str(error).strip().partition("\n")[0]
                    self.failures[node] = text.partition("is not known: ")[2] or text
                else:
                    return

    def run_node(self, n: fx.Node) -> Any:
        """A node's value, with its constant divided away."""
        self._current = n
        if n.op == "placeholder":
            value = super().run_node(n)
            self._input = value if isinstance(value, Traced) else self._input
            return value
        unbounded = next((source for source in n.all_input_nodes if self._is_unbounded(source)), None)
        if unbounded is not None and (n.op == "output" or self._is_proven(n)):
            self._fail(unbounded)
        if n.op == "output":  # certify is told which part of a tuple or a dictionary; each is computed above
            value = super().run_node(n)
            return next(iter(all_traced(value)), value)
        if n in self.known or n in self.failures or self._is_proven(n):
            if "shape" not in n.meta:  # a tuple, say; nor are its parts computed then
                self.known.add(n)
                return None
            return _Stub(tuple(n.meta["shape"][1:]))(self._input)
        value = super().run_node(n)
        return self._divided(n, value) if isinstance(value, Traced) else value

    def _is_proven(self, n: fx.Node) -> bool:
        if n.op != "call_module" or not isinstance(self.module.get_submodule(str(n.target)), LipschitzLayer):
            failed = (source for source in n.all_input_nodes if source in self.failures or source in self.known)
            return any("shape" not in source.meta for source in failed)
        return all(handle.before is None for handle in all_traced(self.map_nodes_to_values(n.args, n)))

    def _is_unbounded(self, n: fx.Node) -> bool:
        """Whether a value has no constant by itself; sqrt(x^2 + 1) has one, though x^2 has none."""
        value = self.env.get(n)
        return isinstance(value, Traced) and value.node.lipschitz == math.inf

    def _fail(self, n: fx.Node) -> None:
        """Stop at the first of the operations in a row that have no constant."""
        before = next((source for source in n.all_input_nodes if self._is_unbounded(source)), None)
        if before is not None:
            self._fail(before)
        self._current = n
        raise InvalidInputError("its slope has no limit; clamp its input, or leave it out")

    def _divided(self, n: fx.Node, value: Traced) -> Traced:
        if value.node.lipschitz == math.inf:
            return value
        arguments = self.map_nodes_to_values((n.args, n.kwargs), n)
        largest = max((_bounded(handle.node) for handle in all_traced(arguments)), default=0.0)
        constant = value.node.lipschitz / largest if largest else 1.0
        small = n in self.means and 0 < constant < 1 - _SLACK
        if not small and constant <= 1 + _SLACK:
            return value
        if not constant < _LARGEST:
            self.failures[n] = f"it multiplies distances by up to {constant:.3g}; leave it out"
            return _Stub(tuple(n.meta["shape"][1:]))(self._input)
        self.constants[n] = constant
        scaled: Any = value
        return scaled * (1 / constant)


def _bounded(node: Node) -> float:
    """The constant of a value, or of the nearest ones before it that have any."""
    if node.lipschitz < math.inf:
        return node.lipschitz
    return max((_bounded(source) for source in node.inputs), default=1.0)


class _Walk(nn.Module):
    """The walk as a model."""

    def __init__(self, audit: Audit) -> None:
        super().__init__()
        self.model = audit.module
        self.audit = audit

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The converted model's output."""
        graph: Any = self.audit.graph
        names = [str(node.target) for node in graph.nodes if node.op == "placeholder"]
        return self.audit.run(*args, *(kwargs[name] for name in names[len(args) :]))
