"""Run a model on a batch in float64, and record what it does as a graph.

The model is called as anybody calls it: its `__call__`, hooks and `forward` run. What they are given is a `Traced`
value, a tensor that knows its shape and nothing else. Nothing can be done to it but by calls of torch's functions,
methods and operators, and each of these either has a proven bound or raises. So nothing happens unseen: a function
that wants the numbers (`if x.sum() > 0`, `.item()`, compiled code) gets an error, not a wrong bound.

This is `torch.fx` with two differences. Shapes are real ones, batch included, so that broadcasts are seen and code
that asks for shapes runs; and the values are computed in the same go, in float64, so that what is certified is what
was traced. Tensors that do not depend on the input (weights, and all that `forward` computes from them) stay in the
type of the model: they are the numbers that the program uses, and are converted to float64 exactly where a traced
value meets them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_internals

from onelip.certification.call_arguments import Arguments
from onelip.certification.frozen import proof_device
from onelip.certification.graph import (
    CallSite,
    Fact,
    Graph,
    MeasuredError,
    Moved,
    Node,
    Pending,
    exactly,
    product_bound,
    repeat_rows,
    sum_bound,
)
from onelip.certification.interception import intercepting
from onelip.certification.joint import joint_lipschitz
from onelip.certification.leaves import Leaf, Proofs
from onelip.certification.operations import (
    RuleError,
    find_inside,
    find_operation,
    module_refusal,
    refusal,
    with_batch_first,
)
from onelip.certification.operations.registered import Call, Operation
from onelip.certification.snapshots import global_states
from onelip.certification.stopped_traces import (
    FAILURES,
    advice,
    described,
    failed,
    fails,
    first_line,
    users_line,
    why_not_here,
    why_not_these,
)
from onelip.certification.traced import Traced, all_traced, by_input
from onelip.errors import OnelipError, UnknownLipschitzConstant
from onelip.linalg.tensor_modes import traced_operations
from onelip.proofs.layer_bound import Arithmetic, LayerBound, Rounding
from onelip.proofs.measured_rounding import error_at


class Tracer:
    """One run of a model on one batch."""

    def __init__(
        self,
        model: nn.Module,
        proofs: Proofs,
        dtype: torch.dtype,
        *,
        keep: bool = False,
        measures: Arithmetic | None = None,
    ) -> None:
        self.model, self.proofs, self.dtype, self.keep, self.measures = model, proofs, dtype, keep, measures
        self.nodes: list[Node] = []
        self.batch, self._device = 0, "cpu"
        self.rows = 1
        """Where `batch` counts rows of values (inputs * rows, ...): so many for each input."""
        self._names = {id(module): name for name, module in reversed(list(model.named_modules(remove_duplicate=False)))}
        self._modules: list[nn.Module] = []
        self._thread = 0
        self.refusal: Exception | None = None
        self.was_asked, self.answers_otherwise = False, False
        """Whether the model's code asked how it is run, and whether it is told the other answer."""

    def run(self, arguments: Arguments) -> tuple[Graph, Tensor]:
        """The graph of the model on a batch in float64, and what it returns.

        Code that asks whether gradients are recorded, or whether it is compiled, may be another program in training or
        deployment than under `no_grad`: it is traced with either answer.
        """
        graph, value = self.trace(arguments)
        if self.was_asked:
            self.check_other_answers(arguments, graph, value)
        return graph, value

    def check_other_answers(self, arguments: Arguments, graph: Graph, value: Tensor) -> None:
        """Refuse a model that computes something else where gradients are recorded, or where it is compiled."""
        other = Tracer(self.model, self.proofs, self.dtype)
        other.answers_otherwise = True
        again, repeated = other.trace(arguments)
        if again.calls() != graph.calls() or not torch.allclose(repeated, value, 1e-9, 0.0, equal_nan=True):
            raise self.refused(
                "the model",
                "it computes something else with gradients, when compiled, or where x lies otherwise in memory",
            )

    def trace(self, arguments: Arguments) -> tuple[Graph, Tensor]:
        """As `run`, with one answer."""
        device = proof_device(arguments.tensors[0].device)
        arguments = arguments.on(device)
        self.batch, self._device, self._thread = arguments.batch, device.type, threading.get_ident()
        drawn = global_states(device)
        values = self._inputs(arguments)
        with torch.set_grad_enabled(self.keep or self.answers_otherwise), traced_operations(), intercepting(self):
            try:
                output = arguments.call(self.model, values)
            except (TypeError, RuntimeError, AttributeError, ValueError, IndexError) as error:
                if "Traced" in str(error):
                    raise self.refused("this call", f"it needs true tensors ({first_line(error)})") from error
                if type(error) not in (RuntimeError, IndexError):
                    raise
                raise failed(error, arguments) from error
        if self.refusal is not None:  # the model's code caught it, and went on with something else
            raise self.refusal
        if global_states(device) != drawn:
            raise self.refused("the model", "it draws random numbers, so that it is another function at every call")
        if not isinstance(output, Traced):
            raise self.refused(
                "the model", f"it returns {described(output)}, which must be one tensor of the input{advice(output)}"
            )
        if output.before is not None or output.rows > 1:
            raise self.refused("the model", "the batch must be the first dimension of what it returns")
        self.check_current(output)
        graph = Graph(tuple(self.nodes), output.node)
        pending = next((found for node in graph.used() if (found := node.fact(Pending))), None)
        if pending is not None:
            raise pending.error
        return graph, output.value

    def _inputs(self, arguments: Arguments) -> list[Traced]:
        """One tensor is the first node. Several are ranges of the vector that is."""
        one = len(arguments.tensors) == 1
        vectors = arguments.tensors[0] if one else arguments.vectors()
        start = Node(0, CallSite("input", "input", ""), tuple(vectors.shape[1:]), (), (), False, exactly)
        start.value = vectors if self.keep else None
        self.nodes = [start]
        whole = Traced(self, start, vectors)
        return [whole] if one else [self._range_of(whole, *part) for part in arguments.ranges()]

    def _range_of(self, whole: Traced, name: str, first: int, value: Tensor) -> Traced:
        index = torch.arange(first, first + value[0].numel())
        return self.add(CallSite(name, "input", ""), [(whole, 1.0)], value, exactly, facts=(Moved(lambda _: index),))

    # What is recorded

    def add(
        self,
        place: CallSite,
        inputs: Sequence[tuple[Traced, float]],
        value: Tensor,
        rounding: Rounding | None,
        *,
        joint: bool = False,
        facts: tuple[Fact, ...] = (),
        shares_memory: bool = False,
        weighted: tuple[float, ...] | None = None,
        before: int | None = None,
    ) -> Traced:
        """A node: what it computed from which inputs, with which coefficients. `before`: see `Traced`."""
        if value.dim() < 1 or (before is None and value.shape[0] != self.batch) or (before and self.rows > 1):
            raise self.refused(
                place, "it mixes the inputs of a batch or drops the batch dimension, which must stay the first one"
            )
        for handle, _ in inputs:
            if rounding is not exactly and handle.node.norm is None:
                handle.node.norm = handle.norms()
        nodes = tuple(handle.node for handle, _ in inputs)
        coefficients = tuple(float(coefficient) for _, coefficient in inputs)
        shape = tuple(by_input(value, before, self.batch).shape[1:])
        node = Node(len(self.nodes), place, shape, nodes, coefficients, joint, rounding, facts=facts)
        node.lipschitz = _lipschitz(node)
        node.weighted = coefficients if weighted is None else weighted
        if shares_memory:
            node.storage, node.version = nodes[0].storage, nodes[0].version
        if self.rows > 1:
            repeat_rows(node, self.rows)
        if self.keep:
            node.value = by_input(value, before, self.batch)
        self.nodes.append(node)
        return Traced(self, node, value, before)

    def check_current(self, handle: Traced) -> None:
        """A value that was overwritten in place through one of its views is not what the program reads."""
        if handle.node.version != handle.node.storage.version:
            raise self.refused(
                handle.node.place, "its memory was overwritten in place before it was used again; use inplace=False"
            )

    def place(self, operation: str) -> CallSite:
        """The innermost module that is running; its own name if it is torch's or onelip's, else the operation's."""
        line = _users_line()
        if not self._modules:
            return CallSite(operation, operation, line)
        module = self._modules[-1]
        path = self._names.get(id(module), "")
        if type(module).__module__.startswith(("torch.nn.modules.", "onelip.")):
            return CallSite(path, type(module).__name__, line)
        return CallSite(f"{path}.{operation}" if path else operation, operation, line)

    def refused(self, where: CallSite | str, why: str) -> UnknownLipschitzConstant:
        """The error for what no bound is known for. Where the model's code catches it, the trace raises it again."""
        words = (self.place(where) if isinstance(where, str) else where).words()
        error = UnknownLipschitzConstant(f"the Lipschitz constant of {words} is not known: {why}")
        self.refusal = self.refusal or error
        return error

    def unbounded(self, where: CallSite) -> UnknownLipschitzConstant:
        """The error for a value of unlimited slope, which is raised if the output depends on it."""
        before = self.refusal
        error = self.refused(where, "its slope has no limit; clamp its input, or divide by what grows as fast")
        self.refusal = before
        return error

    # What is intercepted

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A function, method or operator of torch with a traced value among its arguments."""
        name = getattr(function, "__name__", str(function))
        if name in ("__get__", "__set__", "__delete__"):
            name = function.__self__.__name__
        reason = why_not_here(self._thread)
        if reason is not None:
            raise self.refused(name, reason)
        for handle in all_traced((arguments, keywords)):
            self.check_current(handle)
        reason = why_not_these((arguments, keywords), self._device)
        if reason is not None:
            raise self.refused(name, reason)
        operation = find_operation(function)
        if operation is None:
            place = self.place(name)
            raise self.refused(place, refusal(name, place.kind))
        if any(handle.before is not None for handle in all_traced((arguments, keywords))):
            inside = find_inside(operation)
            if inside is None or (operation.name in ("matmul", "mm") and isinstance(arguments[0], Traced)):
                return self._with_batch_first(operation, name, arguments, keywords)
            operation = inside
        with torch.set_grad_enabled(self.keep), traced_operations(False), self.as_rows((arguments, keywords)):
            try:
                return operation.apply(self, arguments, dict(keywords))
            except FAILURES as error:
                if isinstance(error, OnelipError) or "Traced" in str(error) or fails(function, arguments, keywords):
                    raise
                self.refusal = self.refusal or RuleError(
                    f"the rule for {self.place(name).words()} failed ({type(error).__name__}: {first_line(error)}): "
                    "this is a bug of onelip, please report it"
                )
                raise self.refusal from error

    def _with_batch_first(self, operation: Operation, name: str, arguments: Any, keywords: Any) -> Any:
        found = with_batch_first(Call(self, self.place(operation.name)), operation, arguments, keywords)
        if found is None:
            raise self.refused(
                name,
                "the batch must be its first dimension, so permute it back first; attention, which moves it, "
                "has no Lipschitz constant in any order",
            )
        return found

    @contextmanager
    def as_rows(self, values: Any) -> Iterator[None]:
        """Operations on values of several rows for each input see a batch of rows."""
        counts, before = {handle.rows for handle in all_traced(values)} or {1}, (self.batch, self.rows)
        if len(counts) > 1:
            raise self.refused("this call", "only some of its values have several rows for an input, (batch * n, ...)")
        (self.rows,) = counts
        self.batch = self.batch // before[1] * self.rows
        try:
            yield
        finally:
            self.batch, self.rows = before

    def overwrite(self, handle: Traced, result: Traced) -> Traced:
        """`handle` holds the result from now on, and every other view of its memory is stale."""
        if result is handle:
            return handle
        storage = handle.node.storage
        storage.version += 1
        result.node.storage, result.node.version = storage, storage.version
        handle.node, handle.value = result.node, result.value
        return handle

    def call_module(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A module that is called: a leaf is one node, all others are entered."""
        reason = why_not_here(self._thread) or module_refusal(module)
        (handle,) = arguments if len(arguments) == 1 and not keywords else (None,)
        one = isinstance(handle, Traced) and handle.before is None and not _has_hooks(module)
        self._modules.append(module)
        try:
            if reason is not None:
                raise self.refused(type(module).__name__, reason)
            leaf = self.proofs.leaf(module) if one else None
            if leaf is None:
                return module._call_impl(*arguments, **keywords)
            assert isinstance(handle, Traced)
            with self.as_rows(handle):
                return self._leaf_node(module, leaf, handle)
        except UnknownLipschitzConstant as error:
            self.refusal = self.refusal or error
            raise
        finally:
            self._modules.pop()

    def _leaf_node(self, module: nn.Module, leaf: Leaf, handle: Traced) -> Traced:
        self.check_current(handle)
        place = CallSite(self._names.get(id(module), ""), type(module).__name__, _users_line())
        with torch.set_grad_enabled(self.keep), traced_operations(False):
            version = handle.value._version
            value = leaf.run(handle.value)
            bound, scores = self.proofs.leaf_bound(leaf, handle.shape_without_batch(), place)
            if not isinstance(value, Tensor) or handle.value._version != version:
                raise self.refused(
                    place, "as a module with a bound of its own it must return one tensor and leave its input alone"
                )
        facts = () if scores is None else (scores,)
        result = self.add_unary(place, handle, value, bound, facts=facts)
        if self.keep:
            result.node.run = leaf.run
            result.node.has_parameters = next(module.parameters(), None) is not None
        return result

    def add_unary(
        self, place: CallSite, handle: Traced, value: Tensor, bound: LayerBound, *, facts: tuple[Fact, ...] = ()
    ) -> Traced:
        """A node with one input, whose bound is that of a layer."""
        shares = value.untyped_storage().data_ptr() == handle.value.untyped_storage().data_ptr()
        arguments = place, [(handle, bound.lipschitz)], value, bound.rounding
        result = self.add(*arguments, facts=facts, shares_memory=shares, weighted=(1.0,))
        result.node.exact_offset, result.node.peak = bound.offset * self.rows, bound.peak
        if self.measures is not None and self.rows == 1:
            with traced_operations(False), torch.no_grad():
                errors = error_at(bound, handle.value, self.measures)
            result.node.measured = None if errors is None else MeasuredError(errors, self.measures)
        return result


def _lipschitz(node: Node) -> float:
    pairs = list(zip(node.inputs, node.coefficients, strict=True))
    if len(pairs) == 1:
        return product_bound([node.coefficients[0], node.inputs[0].lipschitz])
    together = joint_lipschitz(pairs)
    if node.joint:
        return together
    apart = sum_bound([product_bound([source.lipschitz, coefficient]) for source, coefficient in pairs])
    # |a + b| <= sqrt(2) |(a, b)|, which is better for values that share no entries
    return min(apart, together * sum_bound([float(len(pairs))]) ** 0.5 * (1 + 2.0**-40))


def _has_hooks(module: nn.Module) -> bool:
    everywhere = module_internals._global_forward_hooks or module_internals._global_forward_pre_hooks
    return bool(everywhere or module._forward_hooks or module._forward_pre_hooks)


def _users_line() -> str:
    return users_line(Tracer.trace.__code__)
