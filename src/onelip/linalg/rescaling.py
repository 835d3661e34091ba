"""AOL rescaling: a diagonal D for which P D has norm at most 1, for matrices and for convolutions.

D_jj = (sum_k |P^H P|_jk)^(-1/2) (Prach and Lampert, "Almost-Orthogonal Layers for Efficient General-Purpose Lipschitz
Networks", ECCV 2022). D^(-2) - P^H P is then diagonally dominant, hence positive semi-definite, so D P^H P D <= I.

Columns are divided by their largest magnitude before they are multiplied, so that no product overflows or
underflows, whatever the scales of the columns are; the divisors cancel and are constants for autograd.

P^T P of a convolution has the autocorrelation A_d = sum_t P_t^T P_(t+d) of its taps as its kernel, and A_(-d) = A_d^T:
half of the offsets suffice.
"""

import math

import torch
from torch import Tensor

from onelip.linalg.definition import Definition
from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import check_real
from onelip.linalg.norms import largest_entry, one_batch

Offset = tuple[int, int]


def _column_scale(magnitude: Tensor) -> tuple[Tensor, Tensor]:
    """Divisors for the columns of the given largest magnitudes (1 for zero columns), and which columns are zero."""
    zero = magnitude == 0
    return magnitude.masked_fill(zero, 1).clamp(min=torch.finfo(magnitude.dtype).tiny), zero


def _inverse_root(row_sums: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """(s_j r_j)^(-1/2) with r_j = sum_k s_k |G_jk|, as two factors because s_j r_j has the square of the range.

    The floor on r_j can only shrink the result; a zero column gets the finite scale 1 and stays zero. r_j is divided by
    its own value, as a constant, so that the gradient has no r_j^(-3/2), which overflows long before r_j^(-1/2).
    """
    row_sums = row_sums.masked_fill(zero, 1).clamp(min=torch.finfo(row_sums.dtype).tiny)
    if not row_sums.requires_grad:
        return scale.rsqrt() * row_sums.rsqrt()
    constant = row_sums.detach()
    return scale.rsqrt() * constant.rsqrt() * (row_sums / constant).rsqrt()


def _row_sums(kernel: Tensor, scale: Tensor) -> Tensor:
    """`autocorrelation_row_sums` with any leading dimensions."""
    flat, column = kernel.reshape(-1, *kernel.shape[-4:]), scale.reshape(-1, scale.shape[-1])
    return autocorrelation_row_sums(flat, column).reshape(scale.shape)


@Definition
def autocorrelation_row_sums(kernel: Tensor, scale: Tensor) -> Tensor:
    """r_j = sum_i s_i sum_d |A_d|_ji of real kernels (b, out, in, kh, kw), divided by s_j before that; s is constant.

    `scale` and the result are (b, in).
    """
    taps, column = taps_of(kernel, scale), scale.unsqueeze(-1)
    total = torch.zeros_like(column)
    for offset in half_of_offsets(*kernel.shape[-2:]):
        here, there = (part.flatten(1, 3) for part in overlap(taps, offset))
        total = total + both_sums((here.mT @ there).abs(), column, offset != (0, 0))
    return total.squeeze(-1)


def taps_of(kernel: Tensor, scale: Tensor) -> Tensor:
    """The divided kernel as (b, kh, kw, out, in): a window of it is then a matrix (window out) x in."""
    return (kernel / scale[:, None, :, None, None]).permute(0, 3, 4, 1, 2).contiguous()


def half_of_offsets(height: int, width: int) -> list[Offset]:
    """Zero first, then one of each two opposite ones."""
    return [(dy, dx) for dy in range(height) for dx in range(1 - width if dy else 0, width)]


def overlap(taps: Tensor, offset: Offset) -> tuple[Tensor, Tensor]:
    """The taps t and t + d, where both are taps: (b, h', w', out, in)."""
    (dy, dx), (height, width) = offset, taps.shape[1:3]
    here = taps[:, : height - dy, max(0, -dx) : width - max(0, dx)]
    return here, taps[:, dy:, max(0, dx) : width + min(0, dx)]


def both_sums(magnitudes: Tensor, column: Tensor, opposite: bool) -> Tensor:
    """|A| s, and |A^T| s where the opposite offset is another one."""
    sums = magnitudes @ column
    return sums + magnitudes.mT @ column if opposite else sums


def aol_scale(matrix: Tensor) -> Tensor:
    """AOL scale of matrices P (..., m, n), shape (..., n): P * D[..., None, :] has norm at most 1."""
    batch = one_batch(matrix)
    magnitudes = batch.detach().abs() if batch.is_complex() else batch.detach()
    scale, zero = _column_scale(largest_entry(magnitudes, (-2,)))
    if is_cpu(batch.device) and not batch.is_complex():
        row_sums = _row_sums(batch[..., None, None], scale)
        return _inverse_root(row_sums, scale, zero).reshape(*matrix.shape[:-2], matrix.shape[-1])
    scaled = batch / scale.unsqueeze(-2)
    row_sums = torch.bmm(torch.bmm(scaled.mH, scaled).abs(), scale.unsqueeze(-1)).squeeze(-1)
    return _inverse_root(row_sums, scale, zero).reshape(*matrix.shape[:-2], matrix.shape[-1])


def aol_kernel_scale(kernel: Tensor) -> Tensor:
    """AOL scale of the input channels for real kernels P (..., out, in, kh, kw), shape (..., in).

    P^T P is a convolution with the autocorrelation v_ji(d) = sum_{o, p} P[o, j, p] P[o, i, p + d] as its kernel, so the
    row sum for channel j is the sum of |v_ji(d)| over i and all (2 kh - 1)(2 kw - 1) offsets d. Offsets that
    coincide on a small torus, or are cut off by zero padding, only lower the true row sum: the scale holds for
    every image size and both paddings. As v_ji(d) = v_ij(-d), half of the offsets suffice.
    """
    check_real(kernel)
    scale, zero = _column_scale(largest_entry(kernel.detach(), (-4, -2, -1)))
    return _inverse_root(_row_sums(kernel, scale), scale, zero)


def rescaled_isometry(kernel: Tensor) -> Tensor:
    """Kernel (..., out, in, kh, kw) whose unrolled matrix has norm at most 1, divided by a bound of its convolution.

    Every pixel stands in kh * kw patches, so the convolution has norm at most sqrt(kh kw); and with AOL's scale D it
    has norm at most 1 as K D, hence at most 1 / min D. The smaller of the two bounds is used. Rounding can only move
    the unrolled norm by a few eps, which the proven bound of the layer counts.
    """
    patches = kernel.shape[-2] * kernel.shape[-1]
    if patches == 1:
        return kernel
    scale = aol_kernel_scale(kernel).amin(-1).clamp(min=1 / math.sqrt(patches))
    return kernel * scale[..., None, None, None, None]
