"""A model traced once, with its weights pinned: what every bound and every certificate of it begins with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onelip.certification.call_arguments import Arguments, example_of
from onelip.certification.fingerprint import Fingerprint
from onelip.certification.frozen import check_model, check_surroundings, evaluation_model, frozen_copy
from onelip.certification.graph import Graph, Jumps, Shape
from onelip.certification.leaves import Proofs
from onelip.certification.precision import check_switches, ieee_arithmetic
from onelip.certification.program import ExactOutputs, fixed_batch, program_device, program_dtype
from onelip.certification.tracing import Tracer
from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.proofs.layer_bound import Arithmetic

_BATCH = 2
"""Inputs that a model is traced on: two, so that what mixes the inputs of a batch is seen."""


@dataclass(frozen=True)
class ProvenModel:
    """A model with pinned weights, what is proven about its parts, and its graph for inputs of one shape."""

    frozen: nn.Module
    proofs: Proofs
    dtype: torch.dtype
    input_shape: Any
    graph: Graph
    switches: Mapping[str, str]
    """The precision switches of torch under which it was proven."""

    def exact(self, arguments: Arguments, measures: Arithmetic | None = None) -> ExactOutputs:
        """Graph and outputs of another batch; rounding errors in the arithmetic `measures` are those of its numbers."""
        tracer = Tracer(self.frozen, self.proofs, self.dtype, measures=measures)
        return ExactOutputs(*tracer.run(arguments.plain().to(torch.float64)))

    @torch.no_grad()
    def check(self, x: Any, outputs: Tensor) -> None:
        """Raise where outputs that another program gives for x, an exported one say, are not this model's.

        They may differ by the proven rounding error of their type, for sums in any order, and by nothing else.
        """
        with ieee_arithmetic():
            exact = self.exact(Arguments.of(x))
        exact.check(outputs.cpu(), torch.zeros(len(outputs), dtype=torch.float64), outputs.dtype)


def prove(program: nn.Module, input_shape: Any) -> ProvenModel:
    """Trace a model in evaluation mode and check the trace against the model itself."""
    check_surroundings()
    with ieee_arithmetic() as switches, torch.no_grad():
        frozen, proofs, dtype = frozen_copy(program), Proofs(), program_dtype(program)
        before, zeros = Fingerprint(frozen), zero_arguments(program, input_shape)
        samples, tracer = zeros.drawn(example_of(input_shape)), Tracer(frozen, proofs, dtype)
        graph, value = tracer.trace(samples)
        check_stateless(before, frozen)
        before = Fingerprint(frozen)
        tracer.check_other_answers(samples, graph, value)  # whether it was seen to ask or not
        check_stateless(before, frozen, strictly=True)
        exact = ExactOutputs(graph, value)
        exact.check_program(program, samples, dtype)
        exact.check_longer_batch(program, samples, dtype)
        check_switches(switches)
    return ProvenModel(frozen, proofs, dtype, zeros.input_shape, graph, switches)


def output_check(model: nn.Module, input_shape: tuple[int, ...]) -> Callable[[Any, Tensor], None]:
    """A function of x and of what another program, an exported one say, returns for it: see `ProvenModel.check`."""
    return prove(evaluation_model(model), input_shape).check


def trace(model: nn.Module, input_shape: Any = None) -> Graph:
    """The graph of a model in evaluation mode, for inputs of one shape."""
    graph = prove(evaluation_model(model), input_shape).graph
    for node in graph.used():
        if node.fact(Jumps):
            raise UnknownLipschitzConstant(
                f"the Lipschitz constant of {node.place.words()} is not known: it jumps by {node.fact(Jumps).by:.3g}, "
                "which certify counts as rounding; use a threshold of 20"
            )
    return graph


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


def zero_arguments(model: nn.Module, input_shape: Any) -> Arguments:
    """Zeros to trace a model on: of these shapes, like this example, or of the shape that the model declares."""
    given = getattr(model, "input_shape", None) if input_shape is None else input_shape
    if given is None:
        raise InvalidInputError("pass input_shape, that of one input without the batch, such as (3, 32, 32)")
    arguments = Arguments.zeros(given, fixed_batch(model) or _BATCH, program_device(model))
    arguments.check_fit(model)
    return arguments


def checked_shape(model: nn.Module, input_shape: Sequence[int] | None) -> Shape:
    """The shape that was passed, or the one that the model declares."""
    check_model(model)
    shapes = zero_arguments(model, input_shape).shapes
    if len(shapes) != 1:
        raise InvalidInputError(
            f"input_shape={input_shape!r} must be one shape, such as (3, 32, 32): this takes models of one argument"
        )
    return shapes[0]
