"""How far two scores of a model can move apart: through the rows of a linear head, or through sqrt(2).

For scores y = W g(x) + b, |(y_i - y_j)(x) - (y_i - y_j)(x')| <= ||w_i - w_j|| L_g ||x - x'||, with the Lipschitz
constant L_g of all that comes before. In general e_i - e_j has norm sqrt(2), and the constant is sqrt(2) L. The former
is never worse, and unlike "unit rows and sqrt(2)" it holds for rows of any angle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from onelip.certification.chain import Step
from onelip.layers.reshape import FirstChannels
from onelip.layers.spatial import MatrixLinear
from onelip.linalg.proven import SAFETY, UNIT_ROUNDOFF, gamma


class LinearHead(NamedTuple):
    """The rows of the matrix that makes the scores, their bias, and where in the chain of layers it stands."""

    position: int
    rows: Tensor
    bias: Tensor


def find_linear_head(steps: list[Step]) -> LinearHead | None:
    """The last layer with parameters, if it is linear and only `FirstChannels` and identities follow."""
    kept: int | None = None
    for position in range(len(steps) - 1, -1, -1):
        step = steps[position]
        if type(step.module) is FirstChannels and len(step.input_shape) == 1:
            kept = step.module.channels if kept is None else kept
        elif type(step.module) not in (nn.Identity, nn.Flatten) or len(step.input_shape) != 1:
            return _rows_of(step, position, kept)
    return None


def _rows_of(step: Step, position: int, kept: int | None) -> LinearHead | None:
    module = step.module
    if len(step.input_shape) != 1 or not isinstance(module, nn.Linear | MatrixLinear):
        return None
    rows = module.weight if isinstance(module, nn.Linear) else module.transformed().tensors()["matrix"]
    count = step.output_shape[0] if kept is None else kept
    rows = rows.detach().double()[:count, : step.input_shape[0]]
    bias = rows.new_zeros(count) if module.bias is None else module.bias.detach().double()[:count]
    return LinearHead(position, rows, bias)


def pairwise_distances(rows: Tensor) -> Tensor:
    """Proven upper bounds of ||w_i - w_j||, (classes, classes).

    Each difference is rounded relative to itself, and the sum of squares by gamma: no cancellation of products.
    """
    squares = torch.stack([(rows - row).square().sum(-1) for row in rows])
    return squares.sqrt() * (1 + gamma(rows.shape[1] + 8)) * SAFETY


def row_norms(rows: Tensor) -> Tensor:
    """Proven upper bounds of ||w_i||."""
    return rows.square().sum(-1).sqrt() * (1 + gamma(rows.shape[1] + 8)) * SAFETY


SQRT2 = math.sqrt(2) * (1 + 4 * UNIT_ROUNDOFF[torch.float64])
