"""Starting values of matrices and kernels, by name.

Matrices (out, in) and kernels (out, in, ...) with any number of axes are treated alike: a matrix is a kernel of one
tap.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

INITIALISATIONS = ("auto", "identity", "orthogonal", "xavier", "normal", "uniform")
"""Names that methods accept; "auto" stands for the method's own choice among the others."""


PUBLISHED_INITIALISATIONS = (*INITIALISATIONS, "published")
"""Names that methods of the comparison paper accept: "published" is the start of weights and biases in its code."""

RESIDUAL_INITIALISATIONS = (*PUBLISHED_INITIALISATIONS, "minmax")
"""Names that the residual layers, CPL and SLL, accept."""

SUM_BIAS = -0.3
"""Initial bias of the sums in the start "minmax": they are active only where a pair is clearly negative. At 0 every
layer would fold the space of images once more, and far fewer of them are certified."""


def centre_tap(weight: Tensor) -> Tensor:
    """The (out, in) matrix in the middle of a kernel, as a view; a matrix is its own centre."""
    return weight[:, :, *((taps - 1) // 2 for taps in weight.shape[2:])]


@torch.no_grad()
def initialise(weight: Tensor, name: str) -> None:
    """Fill a matrix or kernel in place.

    identity: one on the diagonal of the centre tap, the layer starts as the identity (as far as it is square);
    orthogonal: a random matrix with orthonormal rows or columns in the centre tap;
    xavier: independent normal entries of variance 2 / (fan_in + fan_out); normal: of variance 1 / fan_in;
    uniform: torch's default for convolutions;
    minmax: the orthogonal matrix of the differences of the channels i and i + c/2, then of their negated sums (for
    the residual layers, see `initialise_residual`);
    plane: a rotation of the last two channels, which SOC cannot normalise to anything larger, and little else. (Not
    nothing else: powers of the tiny numbers that the first steps would make of zeros are slow to compute with.)
    """
    fan_in = weight[0].numel()
    if name == "identity":
        nn.init.zeros_(weight)
        centre_tap(weight).copy_(torch.eye(*weight.shape[:2]))
    elif name == "orthogonal":
        nn.init.zeros_(weight)
        centre_tap(weight).copy_(random_orthogonal(weight))
    elif name == "minmax":
        nn.init.zeros_(weight)
        centre_tap(weight).copy_(differences_and_sums(weight))
    elif name == "plane":
        nn.init.normal_(weight, std=0.01 / math.sqrt(fan_in))
        corner = centre_tap(weight)[-2:, -2:]
        corner.copy_(torch.tensor([[0.0, -1.0], [1.0, 0.0]])[-corner.shape[0] :, -corner.shape[1] :])
    elif name == "xavier":
        nn.init.xavier_normal_(weight)
    elif name == "normal":
        nn.init.normal_(weight, std=1 / math.sqrt(fan_in))
    elif name == "uniform":
        nn.init.uniform_(weight, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
    else:
        raise AssertionError(f"unknown initialisation {name}")


@torch.no_grad()
def initialise_bias_uniformly(bias: Tensor | None, fan_in: int) -> None:
    """Uniform in [-1 / sqrt(fan_in), 1 / sqrt(fan_in)]: torch's default, where there is a bias."""
    if bias is not None:
        bound = 1 / math.sqrt(fan_in)
        bias.uniform_(-bound, bound)


def random_orthogonal(weight: Tensor) -> Tensor:
    """A random (out, in) matrix with orthonormal rows or columns, in the dtype and on the device of `weight`."""
    matrix = torch.empty(weight.shape[:2], device=weight.device, dtype=weight.dtype)
    return draw_orthogonal(matrix)


@torch.no_grad()
def draw_orthogonal(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """`nn.init.orthogonal_`, also for half types, which have no QR decomposition."""
    wide = torch.empty_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return tensor.copy_(nn.init.orthogonal_(wide, gain=gain))


def differences_and_sums(weight: Tensor) -> Tensor:
    """Orthogonal (c, c) matrix: rows (e_i - e_(i+h)) / sqrt(2), then -(e_i + e_(i+h)) / sqrt(2), h = c // 2.

    The pairs are those of `MaxMin`. Of an odd number of channels the last one has no partner: its row is -e_c.
    """
    half = weight.shape[0] // 2
    unit = torch.eye(weight.shape[0], device=weight.device, dtype=weight.dtype)
    first, second, rest = unit[:half], unit[half : 2 * half], unit[2 * half :]
    return torch.cat([math.sqrt(0.5) * (first - second), -math.sqrt(0.5) * (first + second), -rest])


def identity_or_orthogonal(outputs: int, inputs: int) -> str:
    """The comparison paper's choice for AOL and LOT: the identity in square layers, orthogonal elsewhere."""
    return "identity" if outputs == inputs else "orthogonal"


def initialise_residual(weight: Tensor, bias: Tensor | None, name: str) -> None:
    """Start of a residual layer l(x) = x - (2 / ||W||^2) W^T relu(W x + b); "auto" is "minmax".

    minmax: W is orthogonal, so the layer is an isometry. Along the difference of a pair of channels it exchanges the
    two where the first is the larger, and the `MaxMin` behind it sorts them back. Behind a `MaxMin` all differences are
    active: a network starts as a nearly linear isometry, and its gradients reach all layers.

    Every other name draws a small random bias too. "published" is "xavier", the start of SLL and in the comparison
    paper of CPL: most singular values of a random W are far below its norm, so every layer contracts, and hardly
    anything is left of a deep network's signal and gradient.
    """
    name = "minmax" if name == "auto" else name
    initialise(weight, "xavier" if name == "published" else name)
    if bias is None:
        return
    with torch.no_grad():
        if name == "minmax":
            bias.zero_()
            bias[len(bias) // 2 :] = SUM_BIAS
        else:
            initialise_bias_uniformly(bias, weight[0].numel())
