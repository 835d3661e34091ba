"""Certificates of models whose outputs are numbers, not scores of classes.

With the exact outputs y(x), L the constant of the model, E the error of the pass that computed y and F the error of the
program at any point of the ball, the program's outputs at every x' within r of x are within L r + E + F of the computed
ones, in the L2 norm, so that each of them is.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from onelip.certification.call_arguments import Arguments
from onelip.certification.frozen import evaluation_model
from onelip.certification.graph import Jumps
from onelip.certification.margins import LARGEST_RADIUS
from onelip.certification.outputs import Output, with_output
from onelip.certification.precision import check_switches, ieee_arithmetic
from onelip.certification.program import program_dtype
from onelip.certification.proven_model import prove
from onelip.certification.rounding import error_in_ball
from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.proofs.layer_bound import FLOAT32, FLOAT64
from onelip.proofs.proven import SAFETY


@dataclass(frozen=True)
class CertifiedValues:
    """Outputs of a batch in float64, and what is proven of the program around each input.

    `low` and `high` hold for every input within `radius`; within `radii` outputs move by at most `tolerance`. What was
    not asked for is None.
    """

    values: Tensor
    low: Tensor | None = None
    high: Tensor | None = None
    radii: Tensor | None = None


@torch.no_grad()
def certify_values(
    model: nn.Module,
    x: Any,
    *,
    radius: float | None = None,
    tolerance: float | None = None,
    output: Output | None = None,
) -> CertifiedValues:
    """An interval for each output within a radius, or a radius within which outputs stay within a tolerance, or both.

    The distance of outputs is the L2 norm over all outputs of an input. The program is the model's own, in the type of
    its weights. `output` says which part of what the model returns counts, as in `certify`.

    Examples:
        >>> import torch, onelip
        >>> from onelip.certification import certify_values
        >>> model = onelip.create_linear("aol", 4, 1)
        >>> found = certify_values(model, torch.randn(5, 4), radius=0.1, tolerance=0.5)
        >>> bool((found.high - found.low < 0.21).all()), bool((found.radii > 0.49).all())
        (True, True)
    """
    for name, number in (("radius", radius), ("tolerance", tolerance)):
        if number is not None and not (isinstance(number, Real) and 0 <= number <= LARGEST_RADIUS):
            raise InvalidInputError(f"{name}={number!r} must be a number from 0 to {LARGEST_RADIUS:.0f}")
    if radius is None and tolerance is None:
        raise InvalidInputError("pass radius=0.1 for intervals, tolerance=0.1 for radii, or both")
    arguments = Arguments.of(x)
    program = evaluation_model(with_output(model, output, None))
    dtype = program_dtype(program)
    proven = prove(program, x)
    with ieee_arithmetic():
        exact = proven.exact(arguments)
        exact.check_program(program, arguments, dtype)
        check_switches(proven.switches)
    graph, value, here = exact.graph, exact.value, exact.here
    nodes, last = graph.used(), graph.output
    if any(node.fact(Jumps) or (node.inputs and node.rounding is None) for node in nodes):
        raise UnknownLipschitzConstant("values are not certified where a module jumps or declares no rounding_error")
    arithmetic = FLOAT32 if dtype == torch.float32 else FLOAT64
    low = high = radii = None
    if radius is not None:
        ball = error_in_ball(nodes, arithmetic, here, torch.full((len(value),), float(radius), dtype=torch.float64))
        spread = (last.lipschitz * radius + here.errors[last.index] + ball.errors[last.index]) * SAFETY
        spread = spread.reshape(-1, *[1] * (value.dim() - 1))
        low, high = value - spread, value + spread
    if tolerance is not None:
        most = ((tolerance - here.errors[last.index]) / max(last.lipschitz, 1e-300)).clamp(0.0, LARGEST_RADIUS)
        ball = error_in_ball(nodes, arithmetic, here, most)
        left = tolerance - here.errors[last.index] - ball.errors[last.index]
        radii = torch.where(left > 0, left / max(last.lipschitz, 1e-300) / SAFETY, 0.0).clamp(max=LARGEST_RADIUS)
    return CertifiedValues(value, low, high, radii)
