"""Norms of matrices and convolutions from below, by vectors that follow the weights from step to step of a training.

At every frequency f a vector v_f stands for the largest singular vector of K^(f). A call takes it through two power
iterations v <- K^H K v and finds max_f |K^(f) v_f|, at most the norm: good enough to train with, not to certify.

The matrices K^(f) = sum_t e^(i f t) K_t are never made. A product at all frequencies is one of all taps with all
vectors, by real and imaginary part, and a sum over the taps for each frequency. That is more arithmetic and less time:
it reads the taps, not a matrix per frequency.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelip.linalg.constants import cached_constant
from onelip.linalg.fourier import Size, kernel_phases
from onelip.linalg.norms import largest_magnitude, one_batch

ITERATIONS = 2
"""Power iterations per call: one leaves three times the error while the weights move fast."""

SMALL = 1e-8
"""Share of the last vector in the next one, so that those which a matrix maps to zero stay: K^H K + SMALL has the
singular vectors of K."""


def estimate_matrix_norm(matrix: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """Norm of (..., o, i) from below, and the unit vector (..., i) by which it was found."""
    batch = one_batch(matrix)
    norm, moved = _estimate(batch, None, vector.reshape(len(batch), 1, 1, -1))
    return norm.reshape(matrix.shape[:-2]), moved.reshape(vector.shape)


def estimate_kernel_norm(kernel: Tensor, vectors: Tensor, torus: Size) -> tuple[Tensor, Tensor]:
    """Norm of (..., o, i, kh, kw) on a torus from below, and the unit vectors (..., 2, h, w//2+1, i) that found it.

    The two parts of the vectors are real and imaginary. The norm is |K^(f) v_f| at the frequency where it is largest;
    its gradient is that of the norm with f and v_f held fixed, which at convergence is exact.
    """
    outputs, inputs, *sides = kernel.shape[-4:]
    kernels = kernel.reshape(-1, outputs, inputs, sides[0] * sides[1])
    rotations = None if torus == (sides[0], sides[1]) == (1, 1) else _rotations(kernel, torus, len(kernels))
    by_frequency = vectors.movedim(-4, -2).contiguous()  # (..., h, w', 2, i)
    taps = kernels.movedim(-1, 1).contiguous().view(len(kernels), -1, inputs)
    norm, moved = _estimate(taps, rotations, by_frequency.view(len(kernels), -1, 2, inputs))
    return norm.reshape(kernel.shape[:-4]), moved.view(by_frequency.shape).movedim(-2, -4)


def _rotations(kernel: Tensor, torus: Size, count: int) -> Tensor:
    """(n f, 2, 2 t) for n kernels: e^(i f t) as a real matrix, from parts of products with all taps to their sum."""

    def make(device: torch.device) -> Tensor:
        cos, sin = kernel_phases(torus, kernel)  # (f, t)
        return torch.stack([torch.cat([cos, -sin], -1), torch.cat([sin, cos], -1)], dim=-2).repeat(count, 1, 1)

    key = "rotations", torus, tuple(kernel.shape[-2:]), kernel.dtype, count
    return cached_constant(key, kernel.device, make)


def _estimate(taps: Tensor, rotations: Tensor | None, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Taps (n, t o, i), rotations (n f, p, p t), vectors (n, f, p, i) of p parts: largest norms (n,), new vectors."""
    count, frequencies, parts, inputs = vectors.shape
    v = vectors.view(count, frequencies * parts, inputs)
    with torch.no_grad():
        scaled = taps / largest_magnitude(taps)  # no square overflows
        for _ in range(ITERATIONS):
            image = _product(scaled, rotations, v)
            each = image if rotations is None else torch.bmm(rotations.mT, image)
            v = torch.baddbmm(v, each.view(count, -1, scaled.shape[1]), scaled, beta=SMALL)  # K^(f)^H K^(f) v_f
        v = v.view(vectors.shape)
        v = v / torch.linalg.vector_norm(v, dim=(-2, -1), keepdim=True)
    image = _product(taps, rotations, v.flatten(1, 2)).view(count, frequencies, parts, -1)
    return torch.linalg.vector_norm(image, dim=(-2, -1)).amax(-1), v


def _product(taps: Tensor, rotations: Tensor | None, v: Tensor) -> Tensor:
    """K^(f) v_f, (n f, p, o); a matrix and a 1 x 1 kernel have one frequency and nothing to rotate."""
    each = torch.bmm(v, taps.mT)  # (n, f p, t o)
    if rotations is None:
        return each
    parts, terms = rotations.shape[1:]
    return torch.bmm(rotations, each.view(len(rotations), terms, taps.shape[1] * parts // terms))
