"""Witnesses: what makes the norm of a convolution easy to check by somebody who trusts nobody.

A convolution A whose rows are completed by further columns R satisfies, for all positive d,

    ||A||^2 <= ||[A R]||^2 <= max_i sum_j sum_t |G_ij(t)| d_j / d_i,      G = [A R] [A R]^*

with the autocorrelation G of the rows: a kernel again, which integers compute exactly. Orthogonal layers need neither R
nor d, because their G is the identity; AOL and SLL are scaled such that some d makes the bound 1. For all others R is
the root (t I - A A^*)^(1/2) on the torus of the padded image, which makes the rows orthogonal with the norm sqrt(t).
What is found here need not be trusted: a checker looks at weights, d and R only. The proof is in
docs/certificate_format.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.linalg.block_taps import block_taps

UNIT = 2.0**-40
"""Checkers compute with multiples of this number."""

_CLOSE = 1e-4
"""By how much a simple witness may be above the norm, relatively."""
_LARGEST_SCALING = 2**20


@dataclass(frozen=True)
class Geometry:
    """What a kernel is applied to: an image, with these strides and paddings."""

    image: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    circular: bool = False

    def torus(self) -> tuple[int, int]:
        """Smallest torus, in strides, on which nothing that is kept wraps around."""
        sides = zip(self.image, self.stride, self.padding, strict=True)
        height, width = (-(-(side + (0 if self.circular else 2 * pad)) // step) for side, step, pad in sides)
        return height, width


@dataclass(frozen=True)
class Witness:
    """Rows are outputs or inputs; `columns` is (y, x, column, row); `bound` is what follows for the norm."""

    side: Literal["input", "output"]
    bound: float
    scaling: Tensor | None = None
    columns: Tensor | None = None
    torus: tuple[int, int] | None = None


def find_witness(weight: Tensor, geometry: Geometry, *, rows: Literal["input", "output"] | None = None) -> Witness:
    """The cheapest witness for the norm of a kernel (out, in, y, x) that is close to the norm."""
    outputs, inputs = weight.shape[0], weight.shape[1] * math.prod(geometry.stride)
    side = rows or ("output" if outputs <= inputs else "input")
    image = geometry.torus()
    taps = _taps(weight.double().cpu(), geometry)
    if side == "input":
        taps = taps.transpose(0, 1)
    wraps = any(2 * side - 1 > length for side, length in zip(taps.shape[2:], image, strict=True))
    larger = any(side > length for side, length in zip(taps.shape[2:], image, strict=True))
    torus = image if larger or (wraps and geometry.circular) else None
    plane = (2 * taps.shape[2] - 1, 2 * taps.shape[3] - 1)
    gram = _autocorrelation(taps, torus or plane)
    bound, scaling = _row_bound(gram)
    matrices = torch.fft.fft2(_folded(taps, image))
    norm = float(torch.linalg.matrix_norm(matrices.permute(2, 3, 0, 1), 2).amax())
    if bound <= norm * (1 + _CLOSE):
        return Witness(side, bound, scaling, None, torus)
    if taps.shape[2:] == (1, 1):
        matrices = matrices[:, :, :1, :1]
    else:
        torus = image
    columns = _completing(matrices.permute(2, 3, 0, 1), norm)
    size = torus or (1, 1)
    bound, scaling = _row_bound(_autocorrelation(_folded(taps, size), size) + _autocorrelation(columns, size))
    return Witness(side, bound, scaling, columns.permute(2, 3, 1, 0).contiguous(), torus)


def _taps(weight: Tensor, geometry: Geometry) -> Tensor:
    """The kernel of stride 1 that acts on the pixel-unshuffled image, up to a shift."""
    down, right = (-pad % step for pad, step in zip(geometry.padding, geometry.stride, strict=True))
    return block_taps(F.pad(weight, (right, 0, down, 0)), geometry.stride, (1, 1))


def _folded(taps: Tensor, torus: tuple[int, int]) -> Tensor:
    """The kernel on a torus: taps that fall on each other are added."""
    folded = taps.new_zeros((*taps.shape[:2], *torus))
    for y in range(taps.shape[2]):
        for x in range(taps.shape[3]):
            folded[:, :, y % torus[0], x % torus[1]] += taps[:, :, y, x]
    return folded


def _autocorrelation(taps: Tensor, torus: tuple[int, int]) -> Tensor:
    matrices = torch.fft.fft2(_folded(taps, torus)).permute(2, 3, 0, 1)
    return torch.fft.ifft2((matrices @ matrices.mH).permute(2, 3, 0, 1)).real


def _row_bound(gram: Tensor) -> tuple[float, Tensor | None]:
    """Root of the largest scaled row sum, and the scaling if one is better than none."""
    sums = gram.abs().sum((2, 3))
    plain = float(sums.sum(1).amax())
    vector = torch.ones(len(sums), dtype=torch.float64)
    for _ in range(100):  # Perron's vector, which every row of a positive matrix is scaled by best
        vector = sums @ vector
        vector = (vector / vector.amax()).clamp(min=1e-3)
    scaling = (vector * _LARGEST_SCALING).round().to(torch.int32)
    scaled = float((sums @ scaling.double() / scaling.double()).amax())
    if scaled < plain * (1 - 1e-6):
        return math.sqrt(scaled), scaling
    return math.sqrt(plain), None


def _completing(matrices: Tensor, norm: float) -> Tensor:
    """Real kernel of (t I - A A^*)^(1/2) with t a little above the square of the norm, as checkers round it.

    The bound is that of the rounded kernel: its many small errors add up in the row sums.
    """
    top = (norm * (1 + 1e-7)) ** 2
    values, vectors = torch.linalg.eigh(matrices @ matrices.mH)
    roots = (vectors * (top - values).clamp(min=0).sqrt()[..., None, :].to(vectors.dtype)) @ vectors.mH
    return (torch.fft.ifft2(roots.permute(2, 3, 0, 1)).real / UNIT).floor() * UNIT
