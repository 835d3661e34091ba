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
    nodes = graph.used()
    unknown = any(node.rounding is None for node in nodes if node.inputs)
    if unknown:  # what is not declared is believed to be exact in certificates, but not held against the program
        here = error_at_sample(nodes, FLOAT64, len(scores), assumed=1.0)
    there = error_in_ball(nodes, arithmetic_of(dtype), here, moved, assumed=1.0)
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
