"""Upper bounds of norms that hold in spite of rounding: what certificates are made of.

Everything is computed in float64 with the unit roundoff u = 2^-53. The only fact assumed of the machine is the
textbook one (Higham, "Accuracy and Stability of Numerical Algorithms", chapter 3): an inner product of n terms,
summed in any order and with or without fused multiply-adds, is off by at most gamma_n = n u / (1 - n u) times the
sum of the magnitudes of its terms. No error analysis of an eigenvalue routine or of an FFT is relied upon: a
routine may *suggest* a bound, matrix products then *verify* it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onelip.proofs.exact_scaling import scaled
from onelip.proofs.layer_bound import SAFETY, UNIT_ROUNDOFF, gamma
from onelip.proofs.proven_blocks import large_norm_bound

_FIRST_SLACK = 2.0**-40
BATCH_ENTRIES = 2**23
"""Matrix entries that are verified at once, which bounds the memory (64 MB for real ones)."""


def norm_bound(matrices: Tensor, error: float = 0.0) -> float:
    """Proven upper bound of the largest ||A + E||_2 over a batch of matrices A (..., m, n) and all ||E||_F <= error.

    With G = A^H A, a candidate t for ||A||^2 and *any* matrix R, t I - G = R^H R + D implies G <= t I - D, since
    R^H R >= 0; hence ||A||^2 <= t + ||D||_F. The eigenvalue routine suggests t, the Cholesky factorisation of
    t I - G suggests R, and D is computed with explicit error bounds. The excess over ||A|| is about n^2 u. Where a
    routine fails, the Frobenius norm bounds as well.

    All of it happens after an exact scaling. Matrices with entries that are not finite have the bound infinity, and so
    have norms that are larger than the largest number. `onelip.proofs.proof_cost` says what a proof costs.
    """
    flat = matrices.detach().reshape(-1, *matrices.shape[-2:])
    if flat.numel() == 0:
        return error
    if flat.shape[-2] < flat.shape[-1]:
        flat = flat.mH
    if not flat.is_complex() and flat.shape[-1] ** 2 > BATCH_ENTRIES:
        return (max(large_norm_bound(each) for each in flat) + error) * SAFETY
    count = max(1, BATCH_ENTRIES // (flat.shape[-2] * flat.shape[-1]))
    return (max(_batch_norm_bound(part) for part in flat.split(count)) + error) * SAFETY


def _batch_norm_bound(matrices: Tensor) -> float:
    """`norm_bound` of (b, m, n), m >= n, in float64."""
    parts = scaled(torch.view_as_real(matrices.resolve_conj()) if matrices.is_complex() else matrices)
    if parts is None:
        return math.inf
    real, imag = (parts.tensor[..., 0], parts.tensor[..., 1]) if matrices.is_complex() else (parts.tensor, None)
    stacked = _stack(real, imag)
    square = float(stacked[0].square().sum((-2, -1)).amax())
    if square == 0:
        return parts.restored(0.0)
    gram, gram_error = _gram(*stacked)
    frobenius = square * (1 + gamma(stacked[0][0].numel())) * SAFETY
    return parts.restored(math.sqrt(min(_verified_bound(gram, frobenius) + gram_error, frobenius)) * SAFETY)


def _stack(real: Tensor, imag: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """[B; C] and [C; -B] for A = B + iC: with them, the parts of A^H A are two products of real matrices."""
    if imag is None:
        return real, None
    return torch.cat([real, imag], dim=-2), torch.cat([imag, -real], dim=-2)


def _gram(stacked: Tensor, rotated: Tensor | None) -> tuple[tuple[Tensor, Tensor | None], float]:
    """Real and imaginary parts of A^H A, and a bound of the Frobenius norm of their error, the batch's largest.

    |fl(M^T N) - M^T N| <= gamma |M|^T |N| entry by entry, whose Frobenius norm is at most gamma ||M||_F ||N||_F.
    """
    gram = stacked.mT @ stacked, None if rotated is None else stacked.mT @ rotated
    square = float(stacked.square().sum((-2, -1)).amax())
    parts = 1.0 if rotated is None else math.sqrt(2)
    return gram, parts * gamma(stacked.shape[-2]) * square * (1 + gamma(stacked[0].numel())) * SAFETY


def _join(parts: tuple[Tensor, Tensor | None]) -> Tensor:
    real, imag = parts
    return real if imag is None else torch.complex(real, imag)


def _verified_bound(gram: tuple[Tensor, Tensor | None], limit: float) -> float:
    """Proven upper bound of the largest eigenvalue of Hermitian matrices given by their parts, or `limit`, a bound too.

    A candidate for which the factorisation breaks down is no bound: it is raised, by more each time.
    """
    side = gram[0].shape[-1]
    try:
        candidate = float(torch.linalg.eigvalsh(_join(gram)).amax())
    except RuntimeError:  # it did not converge
        return limit
    slack = max(_FIRST_SLACK, 8 * side * UNIT_ROUNDOFF[torch.float64])
    while 0 < (bound := candidate * (1 + slack)) < limit:
        shifted = -_join(gram)
        shifted.diagonal(dim1=-2, dim2=-1).add_(bound)
        factor, failures = torch.linalg.cholesky_ex(shifted, upper=True)
        if not bool(failures.any()):
            result = bound + _defect(gram, bound, factor)
            return result if result < limit else limit  # a NaN is no bound
        slack *= 16
    return limit


def _defect(gram: tuple[Tensor, Tensor | None], bound: float, factor: Tensor) -> float:
    """Bound of ||t I - G - R^H R||_F, the batch's largest, with the rounding of R^H R and of the differences."""
    parts = torch.view_as_real(factor) if factor.is_complex() else factor
    real, imag = (parts[..., 0], parts[..., 1]) if factor.is_complex() else (parts, None)
    product, product_error = _gram(*_stack(real, imag))
    identity = bound * torch.eye(real.shape[-1], dtype=real.dtype, device=real.device)
    squares = (identity - gram[0] - product[0]).square().sum((-2, -1))
    magnitudes = (identity + gram[0].abs() + product[0].abs()).square().sum((-2, -1))
    if gram[1] is not None and product[1] is not None:
        squares = squares + (gram[1] + product[1]).square().sum((-2, -1))
        magnitudes = magnitudes + (gram[1].abs() + product[1].abs()).square().sum((-2, -1))
    # Two subtractions round by at most u each, relative to the sum of the magnitudes.
    rounding = 3 * UNIT_ROUNDOFF[torch.float64] * math.sqrt(float(magnitudes.amax()))
    relative = 1 + gamma(2 * real[0].numel())
    return (math.sqrt(float(squares.amax())) + rounding) * relative * SAFETY + product_error


def magnitude_norm_bound(matrices: Tensor) -> float:
    """Proven upper bound of the largest || |A| ||_2 over real matrices A (..., m, n), |A| the entrywise magnitudes.

    The smaller of sqrt(||A||_1 ||A||_inf) and the Collatz-Wielandt bound of the Perron root: for P = |A|^T |A| and
    a *positive* vector v, the largest eigenvalue of P is at most max_i (P v)_i / v_i. Power iterations choose v.
    """
    parts = scaled(matrices)
    if parts is None:
        return math.inf
    magnitude = parts.tensor.abs_()
    if not bool((magnitude > 0).any()):
        return parts.restored(0.0)
    simple = magnitude.sum(-2).amax(-1) * magnitude.sum(-1).amax(-1)
    vector = torch.ones_like(magnitude[..., :1, :]).mT
    for _ in range(4):
        vector = magnitude.mT @ (magnitude @ vector)
        vector = vector / vector.amax((-2, -1), keepdim=True).clamp(min=1e-300) + 2.0**-20
    root = (magnitude.mT @ (magnitude @ vector) / vector).amax((-2, -1))
    relative = 1 + gamma(sum(matrices.shape[-2:]) + 4)
    return parts.restored(math.sqrt(float(torch.minimum(simple, root).amax())) * relative * SAFETY)


def batch_norm_bounds(batch: Tensor) -> Tensor:
    """Upper bounds of the norms of the tensors of a batch (n, ...), on the CPU; squares below 2^-1022 may be lost."""
    flat = batch.detach().double().unsqueeze(-1).flatten(1)
    entries = max(1, flat.shape[1])
    return torch.linalg.vector_norm(flat, dim=1).cpu() * (1 + gamma(entries + 8)) + entries**0.5 * 2.0**-509


def vector_norm_bound(vector: Tensor) -> float:
    """Proven upper bound of the 2-norm of all entries of a tensor."""
    parts = scaled(vector)
    if parts is None:
        return math.inf
    return parts.restored(math.sqrt(float(parts.tensor.square().sum())) * (1 + gamma(vector.numel() + 4)) * SAFETY)
