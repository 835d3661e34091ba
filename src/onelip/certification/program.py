"""The proof checked against the program: every certified batch is also run through the model itself.

The exact outputs are within E of those of the float64 pass over the graph, and within F of those of the model's own
program, E and F proven. So the two can differ by E + F at most. If they differ by more, the graph is not what the
model computes, or the machine does not compute as the proof assumes: then nothing that was proven may be used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from onelip.certification.call_arguments import Arguments
from onelip.certification.graph import Graph
from onelip.certification.margins import ScoreConstants
from onelip.certification.rounding import error_at_sample, error_in_ball
from onelip.certification.stopped_traces import failed
from onelip.errors import BrokenCertificateError, UnknownLipschitzConstant
from onelip.proofs.layer_bound import FLOAT32, FLOAT64, Arithmetic
from onelip.proofs.proven import SAFETY

_ALONE = slice(-1, None)
"""The input of a batch that a model is also called with alone: the last one, which then has the place of the first."""

_DEPENDS_ON_BATCH = (
    "the Lipschitz constant of the model is not known: what it computes for an input depends on the number of inputs "
    "in the batch, or on its place there"
)


class ExactOutputs:
    """What the graph gives for a batch in float64, and how far the outputs of a program may be from it.

    Attributes:
        here: bounds of the errors of this pass itself.
        constants: how scores depend on the input, None where the model returns no scores.
    """

    def __init__(self, graph: Graph, value: Tensor) -> None:
        self.graph, self.value = graph, value.detach().cpu()
        self.here = error_at_sample(graph.used(), FLOAT64, len(value))
        self.constants = ScoreConstants.of(graph) if is_scores(graph) else None

    def check_program(self, program: nn.Module, arguments: Arguments, dtype: torch.dtype) -> Tensor:
        """What the model itself returns for these arguments in its own type.

        Raises where that is something else than the graph gives, for the batch or for its last input alone.
        """
        taken, moved = _rounded(arguments, dtype)
        outputs = _called(program, taken)
        self.check(outputs, moved, dtype)
        if fixed_batch(program) is None:
            alone = _called(program, arguments.part(_ALONE).to(dtype))
            try:
                if alone.shape != outputs[:1].shape:
                    raise BrokenCertificateError(f"the output has the shape {tuple(alone.shape)} for one input")
                self.check(torch.cat([outputs[:-1], alone]), moved, dtype)
            except BrokenCertificateError as error:
                raise UnknownLipschitzConstant(_DEPENDS_ON_BATCH) from error
        return outputs

    def check_longer_batch(self, program: nn.Module, arguments: Arguments, dtype: torch.dtype) -> None:
        """Raise where an input more, the first one once again, changes what the model computes for the others.

        For two inputs with two steps, `x.view(steps, len(x), -1)` exchanges nothing; for three it does. A function
        such as a sort may still return them in their order: not so with the copy behind them and in front of them.
        """
        if fixed_batch(program) is not None:
            return
        inputs = [*range(len(self.value))]
        try:
            for places, copy in (([*inputs, 0], -1), ([0, *inputs], 0)):
                longer, moved = _rounded(arguments.part(places), dtype)
                outputs = _called(program, longer)
                if not isinstance(outputs, Tensor) or len(outputs) != len(places):
                    raise BrokenCertificateError("the output is not one for each input")
                own = [place for place in range(len(places)) if place != copy % len(places)]
                for found in (own, [copy, *own[1:]]):
                    self.check(outputs[found], moved[found], dtype)
        except BrokenCertificateError as error:
            raise UnknownLipschitzConstant(_DEPENDS_ON_BATCH) from error

    def check(self, outputs: Any, moved: Tensor, dtype: torch.dtype) -> None:
        """Raise where outputs are not the graph's, in the norm of all of an input or one score by itself.

        `moved`: how far the program's inputs are from the graph's.
        """
        if not isinstance(outputs, Tensor) or outputs.shape != self.value.shape:
            raise BrokenCertificateError("the model's own output has another shape than that of the graph")
        nodes, here, last = self.graph.used(), self.here, self.graph.output
        if any(node.rounding is None for node in nodes if node.inputs):
            # What is not declared is believed to be exact in certificates, but not held against the program.
            here = error_at_sample(nodes, FLOAT64, len(moved), assumed=1.0)
        there = error_in_ball(nodes, _arithmetic_of(dtype), here, moved, assumed=1.0)
        by_moving = (last.lipschitz * moved * SAFETY).nan_to_num(nan=torch.inf)
        difference = (outputs.double() - self.value).reshape(len(moved), -1)
        known = torch.isfinite(self.value).reshape(len(moved), -1)  # there is no error of an infinite value
        norms = torch.linalg.vector_norm(difference, dim=1)
        wrong = known.all(1) & _exceed(norms, here.errors[last.index] + there.errors[last.index] + by_moving)
        if self.constants is not None:
            allowed = self.constants.errors(here, FLOAT64) + self.constants.errors(there, _arithmetic_of(dtype))
            wrong |= (known & _exceed(difference.abs(), allowed + by_moving[:, None])).any(1)
        if bool(wrong.any()):
            worst = torch.where(known, difference, 0.0)[wrong].abs().nan_to_num(nan=torch.inf).amax()
            raise BrokenCertificateError(
                f"what the model returns differs from what was traced by up to {float(worst):.3g}, more than rounding "
                f"can explain, at {int(wrong.sum())} of {len(moved)} inputs: the model changed, or computes something "
                "else, or this device does not compute as the proof assumes"
            )


def _exceed(found: Tensor, allowed: Tensor) -> Tensor:
    return torch.isfinite(allowed) & ~(found <= allowed * SAFETY)


def is_scores(graph: Graph) -> bool:
    """Whether the model returns at least two numbers in a row."""
    return len(graph.output.shape) == 1 and graph.output.shape[0] >= 2


def _rounded(arguments: Arguments, dtype: torch.dtype) -> tuple[Arguments, Tensor]:
    """The arguments in the program's type, and how far that moves each input."""
    taken = arguments.to(dtype)
    return taken, torch.linalg.vector_norm(taken.vectors() - arguments.vectors(), dim=1).cpu()


def _called(program: nn.Module, arguments: Arguments) -> Any:
    """What the model itself returns, or its error on one line."""
    try:
        outputs = arguments.call(program)
        return outputs.detach().as_subclass(Tensor).cpu() if isinstance(outputs, Tensor) else outputs
    except (RuntimeError, IndexError) as error:
        raise failed(error, arguments) from error


def fixed_batch(model: nn.Module) -> int | None:
    """The number of inputs that a program was exported for, None where it takes any."""
    nodes = model.graph.nodes if isinstance(model, torch.fx.GraphModule) else ()
    example = next((node.meta.get("val") for node in nodes if node.op == "placeholder"), None)
    length = example.shape[0] if isinstance(example, torch.Tensor) and example.dim() else None
    return length if isinstance(length, int) else None


def program_dtype(model: nn.Module) -> torch.dtype:
    """The type that a model computes in: that of its weights."""
    tensors = (*model.parameters(), *model.buffers())
    return next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.get_default_dtype())


def program_device(model: nn.Module) -> torch.device:
    """Where a model computes: where its weights are."""
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))


def _arithmetic_of(dtype: torch.dtype) -> Arithmetic:
    """Roundoff and smallest normal number of a type."""
    known = {torch.float64: FLOAT64, torch.float32: FLOAT32}
    return known[dtype] if dtype in known else Arithmetic(torch.finfo(dtype).eps / 2, torch.finfo(dtype).tiny)
