"""Proven upper bounds of the Lipschitz constants of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelip.certification.call_arguments import Arguments
from onelip.certification.fingerprint import Fingerprint
from onelip.certification.frozen import check_model, check_surroundings, evaluation_model, frozen_copy
from onelip.certification.graph import Graph, Shape
from onelip.certification.leaves import Proofs
from onelip.certification.precision import check_switches, ieee_arithmetic
from onelip.certification.program import check_outputs
from onelip.certification.tracing import Tracer, failed
from onelip.errors import BrokenCertificateError, InvalidInputError, UnknownLipschitzConstant
from onelip.linalg.layer_bound import Arithmetic

_BATCH = 2
"""Inputs of zeros on which a model is traced: two, so that what mixes the inputs of a batch is seen."""

ALONE = slice(-1, None)
"""The input of a batch that a model is also called with alone: the last one, which then has the place of the first."""


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
    """The proven bound of every node of a model in evaluation mode, and that from the input up to it."""
    nodes = trace(model, input_shape).used()
    return LipschitzTable(
        LayerRow(node.place.path, node.place.kind, node.shape, node.constant, node.lipschitz)
        for node in nodes
        if node.inputs
    )


def lipschitz_bound(model: nn.Module, input_shape: Any = None) -> float:
    """Proven upper bound of the Lipschitz constant of a model in evaluation mode, for inputs of one shape.

    `input_shape` is that of one input without the batch, such as (3, 32, 32); by default `model.input_shape`. For a
    model of several arguments it is a tuple or a dictionary of shapes, or an example of what `certify` takes.
    Raises `UnknownLipschitzConstant`, naming the place, where something is met that no bound is known for.
    """
    return trace(model, input_shape).output.lipschitz


def trace(model: nn.Module, input_shape: Any = None) -> Graph:
    """The graph of a model in evaluation mode, for inputs of one shape."""
    check_surroundings()
    with ieee_arithmetic() as switches, torch.no_grad():
        graph = prove(evaluation_model(model), input_shape).graph
        check_switches(switches)
        return graph


@dataclass(frozen=True)
class ProvenModel:
    """A model with pinned weights, what is proven about its parts, and its graph for inputs of one shape."""

    frozen: nn.Module
    proofs: Proofs
    dtype: torch.dtype
    input_shape: Any
    graph: Graph

    def tracer(self, measures: Arithmetic | None = None) -> Tracer:
        """For another batch; rounding errors in the arithmetic that it `measures` are those of its own numbers."""
        return Tracer(self.frozen, self.proofs, self.dtype, measures=measures)


def prove(program: nn.Module, input_shape: Any) -> ProvenModel:
    """Trace a model in evaluation mode and check the trace against the model itself."""
    frozen, proofs, dtype = frozen_copy(program), Proofs(), program_dtype(program)
    before, zeros = Fingerprint(frozen), zero_arguments(program, input_shape)
    tracer = Tracer(frozen, proofs, dtype)
    graph, value = tracer.run(zeros)
    check_stateless(before, frozen)
    before = Fingerprint(frozen)
    tracer.check_other_answers(zeros, graph, value)  # whether it was seen to ask or not
    check_stateless(before, frozen, strictly=True)
    check_on_samples(program, tracer, zeros)
    return ProvenModel(frozen, proofs, dtype, zeros.input_shape, graph)


def check_on_samples(program: nn.Module, tracer: Tracer, zeros: Arguments) -> None:
    """The graph checked against the model itself, on random inputs: together, and the last of them alone."""
    samples = zeros.drawn()
    graph, value = tracer.run(samples)
    taken = samples.to(tracer.dtype)
    moved = torch.linalg.vector_norm(taken.vectors() - samples.vectors(), dim=1).cpu()
    outputs, value = called(program, taken).detach().cpu(), value.detach().cpu()
    check_outputs(graph, value, outputs, moved, tracer.dtype)
    if fixed_batch(program) is None:
        alone = called(program, samples.part(ALONE).to(tracer.dtype)).detach().cpu()
        with batch_matters_not():
            check_outputs(graph, value, with_last(alone, outputs), moved, tracer.dtype)


def called(program: nn.Module, arguments: Arguments) -> Any:
    """What the model itself returns, or its error on one line."""
    try:
        return arguments.call(program)
    except (RuntimeError, IndexError) as error:
        raise failed(error, arguments) from error


@torch.no_grad()
def output_check(model: nn.Module, input_shape: tuple[int, ...]) -> Callable[[Tensor, Tensor], None]:
    """A function of x and of what another program, an exported one say, returns for it.

    It raises where that differs from the exact outputs of the model by more than rounding in its type can explain.
    """
    check_surroundings()
    with ieee_arithmetic():
        proven = prove(evaluation_model(model), input_shape)

    def check(x: Tensor, outputs: Tensor) -> None:
        with ieee_arithmetic():
            graph, value = proven.tracer().run(Arguments.of(x).plain().to(torch.float64))
        check_outputs(graph, value.cpu(), outputs.cpu(), torch.zeros(len(x), dtype=torch.float64), outputs.dtype)

    return check


def with_last(alone: Tensor, outputs: Tensor) -> Tensor:
    """The outputs of a batch with what came out for its last input alone in the place of the last."""
    if alone.shape != outputs[:1].shape:
        raise BrokenCertificateError(f"the output has the shape {tuple(alone.shape)} for one input")
    return torch.cat([outputs[:-1], alone])


@contextmanager
def batch_matters_not() -> Iterator[None]:
    """A difference found here is one between an input alone and the same input among others."""
    try:
        yield
    except BrokenCertificateError as error:
        raise UnknownLipschitzConstant(
            "the Lipschitz constant of the model is not known: what it computes for an input depends on the number of "
            "inputs in the batch, or on its place there"
        ) from error


def check_stateless(before: Fingerprint, model: nn.Module, strictly: bool = False) -> None:
    """Refuse a model that is not the same after a call as before. After a second call with inputs of the same shape
    (`strictly`) nothing may be kept that was not kept after the first.
    """
    if not before.matches(model, strictly):
        names = ", ".join(map(repr, before.changed_attributes(model, strictly))) or "its modules, weights or buffers"
        raise UnknownLipschitzConstant(
            f"the Lipschitz constant of the model is not known: its forward changes {names}, so that it may be another "
            "function at every call; what is only kept for others to look at must be None before"
        )


def fixed_batch(model: nn.Module) -> int | None:
    """The number of inputs that a program was exported for, None where it takes any."""
    nodes = model.graph.nodes if isinstance(model, torch.fx.GraphModule) else ()
    example = next((node.meta.get("val") for node in nodes if node.op == "placeholder"), None)
    length = example.shape[0] if isinstance(example, torch.Tensor) and example.dim() else None
    return length if isinstance(length, int) else None


def zero_arguments(model: nn.Module, input_shape: Any) -> Arguments:
    """Zeros to trace a model on: of these shapes, like this example, or of the shape that the model declares."""
    given = getattr(model, "input_shape", None) if input_shape is None else input_shape
    if given is None:
        raise InvalidInputError("pass input_shape, that of one input without the batch, such as (3, 32, 32)")
    arguments = Arguments.zeros(given, fixed_batch(model) or _BATCH, program_device(model))
    arguments.check_fit(model)
    return arguments


def program_dtype(model: nn.Module) -> torch.dtype:
    """The type that a model computes in: that of its weights."""
    tensors = (*model.parameters(), *model.buffers())
    return next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.get_default_dtype())


def program_device(model: nn.Module) -> torch.device:
    """Where a model computes: where its weights are."""
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))


def checked_shape(model: nn.Module, input_shape: Sequence[int] | None) -> Shape:
    """The shape that was passed, or the one that the model declares."""
    check_model(model)
    shapes = zero_arguments(model, input_shape).shapes
    if len(shapes) != 1:
        raise InvalidInputError(
            f"input_shape={input_shape!r} must be one shape, such as (3, 32, 32): this takes models of one argument"
        )
    return shapes[0]
