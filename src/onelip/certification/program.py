"""The proof checked against the program: every certified batch is also run through the model itself.

The exact scores are within E of those of the float64 pass over the graph, and within F of those of the model's own
program, E and F proven. So the two can differ by E + F at most. If they differ by more, the graph is not what the
model computes, or the machine does not compute as the proof assumes: then nothing that was proven may be used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelip.certification.graph import Graph
from onelip.certification.margins import ScoreConstants
from onelip.certification.rounding import ForwardError, error_at_sample, error_in_ball
from onelip.errors import BrokenCertificateError
from onelip.linalg.layer_bound import FLOAT32, FLOAT64, Arithmetic
from onelip.linalg.proven import SAFETY


def arithmetic_of(dtype: torch.dtype) -> Arithmetic:
    """Roundoff and smallest normal number of a type."""
    known = {torch.float64: FLOAT64, torch.float32: FLOAT32}
    return known[dtype] if dtype in known else Arithmetic(torch.finfo(dtype).eps / 2, torch.finfo(dtype).tiny)


def check_outputs(graph: Graph, value: Tensor, program: Tensor, moved: Tensor, dtype: torch.dtype) -> None:
    """As `check_program`, for outputs of any shape: by the norm of what is returned for an input."""
    if not isinstance(program, Tensor) or program.shape != value.shape:
        raise BrokenCertificateError("the model's own output has another shape than that of the graph")
    here, there = _errors(graph, error_at_sample(graph.used(), FLOAT64, len(value)), moved, dtype)
    allowed = sum(forward.errors[graph.output.index] for forward in (here, there)) + graph.output.lipschitz * moved
    difference = torch.linalg.vector_norm((program.double() - value).flatten(1), dim=1)
    wrong = torch.isfinite(allowed) & ~(difference <= allowed * SAFETY)
    if bool(wrong.any()):
        raise BrokenCertificateError(
            f"what the model returns differs from what was traced by up to {float(difference[wrong].amax()):.3g}, "
            "more than rounding can explain: it computes something else, or this device not as the proof assumes"
        )


def _errors(graph: Graph, here: ForwardError, moved: Tensor, dtype: torch.dtype) -> tuple[ForwardError, ForwardError]:
    """Errors of the float64 pass, and of the program on inputs that may be rounded.

    What is not declared is believed to be exact in certificates, but not held against the program.
    """
    nodes = graph.used()
    if any(node.rounding is None for node in nodes if node.inputs):
        here = error_at_sample(nodes, FLOAT64, len(moved), assumed=1.0)
    return here, error_in_ball(nodes, arithmetic_of(dtype), here, moved, assumed=1.0)


def check_program(
    graph: Graph,
    constants: ScoreConstants,
    here: ForwardError,
    scores: Tensor,
    program: Tensor,
    moved: Tensor,
    dtype: torch.dtype,
) -> None:
    """Raise where the program's scores are not the graph's. `moved`: how far its inputs are from the graph's."""
    if not isinstance(program, Tensor) or program.shape != scores.shape:
        raise BrokenCertificateError("the model's own output has another shape than that of the pinned weights")
    here, there = _errors(graph, here, moved, dtype)
    allowed = constants.errors(here, FLOAT64) + constants.errors(there, arithmetic_of(dtype))
    allowed = (allowed + (graph.output.lipschitz * moved * SAFETY).nan_to_num(nan=torch.inf)[:, None]) * SAFETY
    difference = (program.double() - scores).abs()
    wrong = torch.isfinite(allowed) & ~(difference <= allowed)
    if bool(wrong.any()):
        worst = torch.where(wrong, difference.nan_to_num(nan=torch.inf), 0.0).amax()
        raise BrokenCertificateError(
            f"scores of the model differ from those of the weights that were certified by up to {float(worst):.3g}, "
            f"more than rounding can explain, at {int(wrong.any(1).sum())} of {len(scores)} inputs: the model changed, "
            "or computes something else than was traced, or this device does not compute as the proof assumes"
        )
