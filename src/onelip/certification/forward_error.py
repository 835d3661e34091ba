"""How far a floating-point pass can be from the exact function, layer by layer and sample by sample.

An error e at the input of a layer becomes at most lipschitz * e at its output, and the layer adds slope * ||input|| +
constant of its own. The norm of the input is measured at x; at a point within a radius r of x, after layers of
constants L_1 ... L_i, it can be larger by L_1 ... L_i r and by the errors made so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from onelip.certification.bounds import product_bound
from onelip.certification.chain import Step
from onelip.certification.errors import UnknownRoundingError
from onelip.linalg.layer_bound import Arithmetic, RoundingError
from onelip.linalg.proven import SAFETY

LARGEST_ACTIVATION = 2.0**100
"""Sums whose magnitudes may exceed this could overflow in float32: then no bound is given."""


class ForwardError(NamedTuple):
    """At the input of each layer and at the output of the last: bounds of the error, and of the computed norms."""

    errors: list[Tensor]
    norms: list[Tensor]


def rounding_errors(steps: Sequence[Step], arithmetic: Arithmetic) -> list[RoundingError]:
    """The rounding error of every layer; raises where one is not known."""
    found = []
    for step in steps:
        if step.bound.rounding is None:
            raise UnknownRoundingError(
                f"the rounding error of {step.path!r} ({type(step.module).__name__}) is not known: declare a float "
                "`rounding_error` in units of roundoff, 0 if it only selects, moves or drops entries"
            )
        found.append(step.bound.rounding(arithmetic))
    return found


def input_constants(steps: Sequence[Step]) -> list[float]:
    """Lipschitz constants from the model's input to the input of each layer, and to the output of the last."""
    constants = [1.0]
    for step in steps:
        constants.append(product_bound([constants[-1], step.bound.lipschitz]))
    return constants


def error_at_sample(steps: Sequence[Step], rounding: Sequence[RoundingError], norms: Sequence[Tensor]) -> ForwardError:
    """The error of a pass whose computed activations have these norms."""
    error = torch.zeros_like(norms[0])
    errors = [error]
    for step, made, norm in zip(steps, rounding, norms, strict=True):
        error = (step.bound.lipschitz * error + made.slope * norm + made.constant) * SAFETY
        errors.append(error)
    return ForwardError(errors, list(norms))


def error_in_ball(
    steps: Sequence[Step],
    rounding: Sequence[RoundingError],
    arithmetic: Arithmetic,
    at_sample: ForwardError,
    radii: Tensor,
) -> ForwardError:
    """The error of any pass in this arithmetic at any point within `radii` of the samples."""
    error = torch.zeros_like(radii)
    errors, norms = [error], []
    constants = input_constants(steps)
    for index, (step, made) in enumerate(zip(steps, rounding, strict=True)):
        exact = at_sample.norms[index] + at_sample.errors[index] + constants[index] * radii
        norm = (exact + error) * SAFETY
        added = made.slope * norm + made.constant
        added = added.masked_fill(added / arithmetic.unit_roundoff + norm > LARGEST_ACTIVATION, torch.inf)
        error = (step.bound.lipschitz * error + added) * SAFETY
        errors.append(error)
        norms.append(norm)
    return ForwardError(errors, norms)
