"""Norms of matrices and convolutions from below, by vectors that follow the weights from step to step of a training.

At every frequency f a unit vector v_f stands for the largest singular vector of K^(f). A step takes the best vector of
the plane of v and A^H A v (the first two Lanczos vectors): with s = |A v|^2, r = A^H A v - s v, rho = |r| and
beta = |A r|^2 / rho^2, the operator A^H A is ((s, rho), (rho, beta)) there, and its largest eigenvalue lambda belongs to
(lambda - beta) v + r. That takes as many products as a power iteration and the norm of its result, and finds more.

The matrices K^(f) = sum_t e^(i f t) K_t are never made. A product at all frequencies is one of the taps with all
vectors, by real and imaginary part, and a sum over the taps for each frequency.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelip.linalg.constants import keep_constant
from onelip.linalg.fourier import Size, kernel_to_frequency

SMALL = 1e-15
"""Share of the last vector in the next one, for those that the matrix maps to zero."""


def estimate_matrix_norm(matrix: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """Norm of (..., o, i) from below, and the vector (..., i) after one step."""
    phases = torch.ones(1, 1, 1, dtype=matrix.dtype, device=matrix.device)
    norm, moved = _estimate(matrix.unsqueeze(-3), phases, vector[..., None, None, :])
    return norm, moved[..., 0, 0, :]


def estimate_kernel_norm(kernel: Tensor, vectors: Tensor, torus: Size) -> tuple[Tensor, Tensor]:
    """Norm of (..., o, i, kh, kw) on a torus from below, and the vectors (..., 2, h, w//2+1, i) after one step.

    The two parts of the vectors are real and imaginary. The norm is |K^(f) v_f| at the frequency where it is largest;
    its gradient is that of the norm with f and v_f held fixed, which at convergence is exact.
    """
    taps = kernel.flatten(-2).movedim(-1, -3).contiguous()
    by_frequency = vectors.flatten(-3, -2).transpose(-3, -2).to(kernel.dtype)
    norm, moved = _estimate(taps, _tap_phases(kernel, torus), by_frequency)
    return norm, moved.transpose(-3, -2).unflatten(-2, vectors.shape[-3:-1])


def _tap_phases(kernel: Tensor, torus: Size) -> Tensor:
    """(f, 2, 2 t): e^(i f t) as a real matrix, from the parts of the products with all taps to those of their sum."""

    def make(device: torch.device) -> Tensor:
        count = kernel.shape[-2] * kernel.shape[-1]
        taps = torch.eye(count, dtype=kernel.dtype, device=device).reshape(1, count, *kernel.shape[-2:])
        phases = kernel_to_frequency(taps, torus).flatten(0, 1).squeeze(-2)  # (f, t)
        real, imag = phases.real, phases.imag
        return torch.stack([torch.cat([real, -imag], -1), torch.cat([imag, real], -1)], dim=-2)

    return keep_constant(("tap rotations", torus, tuple(kernel.shape[-2:]), kernel.dtype), kernel.device, make)


def _estimate(taps: Tensor, phases: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Taps (..., t, o, i), phases (f, p, p t), vectors (..., f, p, i) of p parts: the largest norm, all new vectors."""
    scale = taps.detach().abs().amax((-3, -2, -1), keepdim=True).clamp_min(torch.finfo(taps.dtype).tiny)
    scaled = taps / scale  # no square overflows; the norm is homogeneous, so that the scale is a constant for autograd
    with torch.no_grad():
        moved, squares = _step(scaled.detach(), phases, vectors)
        best = squares.argmax(-1)
        place = best[..., None, None, None].expand(*best.shape, 1, *vectors.shape[-2:])
        vector = moved.gather(-3, place)
        phase = phases.index_select(0, best.reshape(-1)).reshape(*best.shape, 1, *phases.shape[1:])
    norm = torch.linalg.vector_norm(_product(scaled, phase, vector), dim=(-3, -2, -1))
    return norm * scale[..., 0, 0, 0], moved


def _step(taps: Tensor, phases: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The best unit vectors of the planes of v and A^H A v, and the squares of the norms that they show."""
    v = vectors / _length(vectors)
    image = _product(taps, phases, v)
    square = _length(image).square()
    rest = _adjoint(taps, phases, image) - square * v
    length = _length(rest)
    other = _length(_product(taps, phases, rest / length.clamp_min(SMALL))).square()
    half = (square - other) / 2
    root = torch.hypot(half, length)
    best = (half + root + SMALL) * v + rest
    return best / _length(best), (square - half + root)[..., 0, 0]


def _length(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors, dim=(-2, -1), keepdim=True)


def _product(taps: Tensor, phases: Tensor, vectors: Tensor) -> Tensor:
    """K^(f) v_f: (..., f, p, i) to (..., f, p, o)."""
    count, parts = vectors.shape[-3:-1]
    each = vectors.flatten(-3, -2) @ taps.flatten(-3, -2).mT  # (..., f p, t o)
    return phases @ each.unflatten(-1, taps.shape[-3:-1]).reshape(*each.shape[:-2], count, -1, taps.shape[-2])


def _adjoint(taps: Tensor, phases: Tensor, vectors: Tensor) -> Tensor:
    """K^(f)^H u_f: (..., f, p, o) to (..., f, p, i)."""
    count, parts = vectors.shape[-3:-1]
    each = (phases.mT @ vectors).reshape(*vectors.shape[:-3], count * parts, -1)  # (..., f p, t o)
    return (each @ taps.flatten(-3, -2)).unflatten(-2, (count, parts))
