"""Parameter transformations in training on accelerators, done again in the backward pass rather than kept.

Autograd keeps every step of a transformation, for all layers of a network, until the backward pass reaches them. Here
the parameters are kept alone. The backward pass transforms a few layers at a time with gradients, uses these and goes
on to the next ones: it holds the steps of some megabytes of layers, whatever the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onelip.layers.contract import Request
from onelip.layers.operator_sources import Build
from onelip.layers.operators import Operator
from onelip.linalg.devices import is_cpu
from onelip.linalg.tensor_modes import no_autocast, wants_plain_operations

BYTES_AT_ONCE = 2**23
"""Of transformed parameters whose gradients are computed at a time."""

Named = Mapping[str, Tensor]


def recomputed(build: Build, request: Request, tensors: Sequence[Named]) -> Build:
    """In training on accelerators so that nothing but the tensors is kept for the backward pass."""
    flat = [tensor for named in tensors for tensor in named.values()]
    learning = request.training and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in flat)
    return build if not learning or wants_plain_operations() or is_cpu(flat[0].device) else partial(_recomputed, build)


def _recomputed(build: Build, places: slice, tensors: Sequence[Named]) -> list[Operator]:
    flat = [tensor for named in tensors for tensor in named.values()]
    wanted = [tensor.requires_grad for tensor in flat]
    plan = _Plan(build, [list(named) for named in tensors])
    if not all(wanted):  # buffers, which a layer may change in place for its next step
        kept = iter(torch._foreach_add([t for t, want in zip(flat, wanted, strict=True) if not want], 0))
        flat = [tensor if want else next(kept) for tensor, want in zip(flat, wanted, strict=True)]
    results: Any = iter(_Recomputed.apply(plan, *flat))
    operators, plan.operators = plan.operators, []
    return [operator.map(lambda _: next(results)) for operator in operators]


class _Plan:
    """What is done with the tensors of all layers, one after the other in one list."""

    def __init__(self, build: Build, names: list[list[str]]) -> None:
        self.build, self.names = build, names
        self.operators: list[Operator] = []
        self.parts: list[tuple[slice, slice, slice]] = []

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors of all operators."""
        everything = slice(0, len(self.names))
        self.operators = self.build(everything, self._named(everything, tensors))
        results = [list(operator.tensors().values()) for operator in self.operators]
        self.parts = list(self._parts(results))
        return [tensor.detach() for own in results for tensor in own]  # constants and parameters stay what they are

    def _parts(self, results: list[list[Tensor]]) -> Iterator[tuple[slice, slice, slice]]:
        """The layers, tensors and results that are done at a time."""
        start, size = (0, 0, 0), 0
        end = start
        for names, own in zip(self.names, results, strict=True):
            more = sum(tensor.nbytes for tensor in own)
            if size and size + more > BYTES_AT_ONCE:
                yield _between(start, end)
                start, size = end, 0
            end, size = (end[0] + 1, end[1] + len(names), end[2] + len(own)), size + more
        yield _between(start, end)

    def _named(self, layers: slice, tensors: Sequence[Tensor]) -> list[dict[str, Tensor]]:
        values = iter(tensors)
        return [{name: next(values) for name in names} for names in self.names[layers]]

    def gradients(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of the tensors, given those of the results."""
        if torch.is_grad_enabled():  # a second derivative goes through all steps
            return self._gradients(slice(0, len(self.names)), tensors, gradients, True)
        found: list[Tensor | None] = []
        for layers, places, results in self.parts:
            leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors[places]]
            with torch.enable_grad():
                found.extend(self._gradients(layers, leaves, gradients[results], False))
        return found

    def _gradients(
        self, layers: slice, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None], again: bool
    ) -> list[Tensor | None]:
        operators = self.build(layers, self._named(layers, tensors))
        results = [tensor for operator in operators for tensor in operator.tensors().values()]
        pairs = [
            (result, gradient)
            for result, gradient in zip(results, gradients, strict=True)
            if gradient is not None and result.requires_grad
        ]
        leaves = [tensor for tensor in tensors if tensor.requires_grad]
        found: Any = [None] * len(leaves)
        if pairs:
            values, cotangents = zip(*pairs, strict=True)
            with no_autocast(leaves[0].device.type):  # a caller may go backward under it
                found = torch.autograd.grad(values, leaves, cotangents, create_graph=again, allow_unused=True)
        found = iter(found)
        return [next(found) if tensor.requires_grad else None for tensor in tensors]


def _between(start: tuple[int, int, int], end: tuple[int, int, int]) -> tuple[slice, slice, slice]:
    layers, tensors, results = (slice(*ends) for ends in zip(start, end, strict=True))
    return layers, tensors, results


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.plan, ctx.context = plan, copy_context()
        return tuple(plan.forward(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        return None, *ctx.context.run(ctx.plan.gradients, ctx.saved_tensors, gradients)
