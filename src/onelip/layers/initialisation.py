"""Starting values of matrices and kernels, by name.

Matrices (out, in) and kernels (out, in, k, k) are treated alike: a matrix is a kernel of one tap.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

INITIALISATIONS = ("auto", "identity", "orthogonal", "xavier", "normal", "uniform")
"""Names that methods accept; "auto" stands for the method's own choice among the others."""


def centre_tap(weight: Tensor) -> Tensor:
    """The (out, in) matrix in the middle of a kernel, as a view; a matrix is its own centre."""
    return weight if weight.dim() == 2 else weight[:, :, weight.shape[2] // 2, weight.shape[3] // 2]


@torch.no_grad()
def initialise(weight: Tensor, name: str) -> None:
    """Fill a matrix or kernel in place.

    identity: one on the diagonal of the centre tap, the layer starts as the identity (as far as it is square);
    orthogonal: a random matrix with orthonormal rows or columns in the centre tap;
    xavier: independent normal entries of variance 2 / (fan_in + fan_out); normal: of variance 1 / fan_in;
    uniform: torch's default for convolutions.
    """
    fan_in = weight[0].numel()
    if name == "identity":
        nn.init.zeros_(weight)
        centre_tap(weight).fill_diagonal_(1.0)
    elif name == "orthogonal":
        nn.init.zeros_(weight)
        centre_tap(weight).copy_(random_orthogonal(weight))
    elif name == "xavier":
        nn.init.xavier_normal_(weight)
    elif name == "normal":
        nn.init.normal_(weight, std=1 / math.sqrt(fan_in))
    elif name == "uniform":
        nn.init.uniform_(weight, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
    else:
        raise AssertionError(f"unknown initialisation {name}")


def random_orthogonal(weight: Tensor) -> Tensor:
    """A random (out, in) matrix with orthonormal rows or columns, in the dtype and on the device of `weight`."""
    matrix = torch.empty(weight.shape[:2], device=weight.device, dtype=weight.dtype)
    return nn.init.orthogonal_(matrix)


def identity_or_orthogonal(weight: Tensor) -> str:
    """The comparison paper's choice for AOL and LOT: the identity in square layers, orthogonal elsewhere."""
    return "identity" if weight.shape[0] == weight.shape[1] else "orthogonal"
