"""AOL rescaling: a diagonal D for which P D has norm at most 1, for matrices and for convolutions.

D_jj = (sum_k |P^H P|_jk)^(-1/2) (Prach and Lampert, "Almost-Orthogonal Layers for Efficient General-Purpose Lipschitz
Networks", ECCV 2022). D^(-2) - P^H P is then diagonally dominant, hence positive semi-definite, so D P^H P D <= I.

Columns are divided by their largest magnitude before they are multiplied, so that no product overflows or
underflows, whatever the scales of the columns are; the divisors cancel and are constants for autograd.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from onelip.linalg.autocorrelation import autocorrelation_row_sums
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.fourier import check_real
from onelip.linalg.norms import one_batch


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


def _largest(values: Tensor, entries: tuple[int, ...]) -> Tensor:
    """The largest magnitude over these dimensions; on accelerators by one kernel."""
    if suits_cpu(values.device):
        return values.abs().amax(entries)
    return torch.linalg.vector_norm(values, ord=math.inf, dim=entries)


def aol_scale(matrix: Tensor) -> Tensor:
    """AOL scale of matrices P (..., m, n), shape (..., n): P * D[..., None, :] has norm at most 1."""
    batch = one_batch(matrix)
    scale, zero = _column_scale(_largest(batch.detach(), (-2,)))
    if suits_cpu(batch.device) and not batch.is_complex():
        row_sums = autocorrelation_row_sums(batch[..., None, None], scale)
        return _inverse_root(row_sums, scale, zero).reshape(*matrix.shape[:-2], matrix.shape[-1])
    scaled = batch / scale.unsqueeze(-2)
    row_sums = torch.bmm(torch.bmm(scaled.mH, scaled).abs(), scale.unsqueeze(-1)).squeeze(-1)
    return _inverse_root(row_sums, scale, zero).reshape(*matrix.shape[:-2], matrix.shape[-1])


def _row_sums_by_convolution(scaled: Tensor, scale: Tensor) -> Tensor:
    """All offsets at once: the kernel convolved with itself, leading batch dimensions as groups."""
    out_channels, in_channels, height, width = scaled.shape[-4:]
    channels_first = scaled.transpose(-4, -3).reshape(-1, out_channels, height, width)
    groups = channels_first.shape[0] // in_channels
    images = channels_first.unflatten(0, (groups, in_channels)).transpose(0, 1).flatten(1, 2)
    padding = (height - 1, width - 1)
    correlation = F.conv2d(images, channels_first, padding=padding, groups=groups)
    magnitudes = correlation.abs().sum((-2, -1)).unflatten(1, (groups, in_channels)).transpose(0, 1)
    return torch.bmm(magnitudes, scale.reshape(groups, in_channels, 1)).reshape(scale.shape)


# Up to here (out * in) one convolution is faster on CPUs than many small products; measured for 3 x 3 kernels:
# forward and backward 1.3 against 2.4 ms for 32 channels, 3.5 ms both for 64, 123 against 55 ms for 256.
_CONVOLUTION_UP_TO = 64 * 64


def aol_kernel_scale(kernel: Tensor) -> Tensor:
    """AOL scale of the input channels for real kernels P (..., out, in, kh, kw), shape (..., in).

    P^T P is a convolution with the autocorrelation v_ji(d) = sum_{o, p} P[o, j, p] P[o, i, p + d] as its kernel, so the
    row sum for channel j is the sum of |v_ji(d)| over i and all (2 kh - 1)(2 kw - 1) offsets d. Offsets that
    coincide on a small torus, or are cut off by zero padding, only lower the true row sum: the scale holds for
    every image size and both paddings. As v_ji(d) = v_ij(-d), half of the offsets suffice.
    """
    check_real(kernel)
    scale, zero = _column_scale(_largest(kernel.detach(), (-4, -2, -1)))
    out_channels, in_channels, height, width = kernel.shape[-4:]
    small = out_channels * in_channels <= _CONVOLUTION_UP_TO or not suits_cpu(kernel.device)
    if height * width > 1 and small:
        row_sums = _row_sums_by_convolution(kernel / scale[..., None, :, None, None], scale)
    else:
        row_sums = autocorrelation_row_sums(kernel, scale)
    return _inverse_root(row_sums, scale, zero)


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
