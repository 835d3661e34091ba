"""Spectral rescaling: AOL's diagonal from powers of the Gram matrix (Delattre et al., "Spectral Norm of Convolutional
Layers with Circular and Zero Paddings", 2024).

With G = P^H P and p = 2^(t-1), the matrix diag(r) - G^p is diagonally dominant for r_j = sum_k |G^p|_jk, so
G^p <= diag(r). The root x^(1/p) is operator monotone: G <= diag(r)^(1/p), and P D has norm at most 1 for
D_jj = r_j^(-1/2^t). t = 1 is AOL; every further step brings the largest singular values nearer to 1.

For a convolution G^p is one again, with a kernel of 2^t (k - 1) + 1 taps a side, and the sum runs over channels and
offsets. It is computed by frequency on a torus of that side, on which nothing wraps around: the scale then holds for
every image and both paddings, because offsets that coincide or are cut off only lower the true row sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onelip.linalg.fourier import Blocks, check_real, pack, packed_to_kernel, torus_blocks
from onelip.linalg.norms import real_parts


def rescaling(matrix: Tensor, steps: int) -> Tensor:
    """D (..., n) of matrices P (..., m, n) for which P * D[..., None, :] has norm at most 1."""
    (power,), divisor = _gram_power((matrix.unsqueeze(-3),), steps)
    return _root_of_row_sums(power.squeeze(-3).abs().sum(-1), divisor, steps)


def kernel_rescaling(kernel: Tensor, steps: int) -> Tensor:
    """D (..., in) of kernels P (..., out, in, kh, kw) for which P * D[..., None, :, None, None] has norm at most 1."""
    check_real(kernel)
    height, width = (2**steps * (side - 1) + 1 for side in kernel.shape[-2:])
    blocks, divisor = _gram_power(torus_blocks(kernel, (height, width)), steps)
    power = packed_to_kernel(pack(blocks), (height, width))
    return _root_of_row_sums(power.abs().sum((-3, -2, -1)), divisor, steps)


def _gram_power(blocks: Blocks, steps: int) -> tuple[Blocks, Tensor]:
    """(A^H A)^(2^(steps-1)) / c and c^(1/2^steps), for matrices (..., f, m, n) with c (...) common to all frequencies.

    The power is divided by its largest entry before every product, so that nothing overflows. c is a constant for
    autograd: it cancels.
    """
    magnitude = _largest(blocks)
    blocks = tuple(block / magnitude[..., None, None, None] for block in blocks)
    divisor = magnitude
    for step in range(1, steps + 1):
        blocks = tuple(block.mH @ block for block in blocks)
        magnitude = _largest(blocks)
        blocks = tuple(block / magnitude[..., None, None, None] for block in blocks)
        divisor = divisor * magnitude ** (0.5**step)
    return blocks, divisor


def _largest(blocks: Blocks) -> Tensor:
    """The largest real or imaginary part at any frequency, (...), a normal number; 1 where all are zero."""
    largest = torch.stack([real_parts(block.detach()).abs().amax((-4, -3, -2, -1)) for block in blocks]).amax(0)
    return largest.masked_fill(largest == 0, 1).clamp(min=torch.finfo(largest.dtype).tiny)


def _root_of_row_sums(row_sums: Tensor, divisor: Tensor, steps: int) -> Tensor:
    """(c r_j)^(-1/2^t) with the row sums r_j of the divided power.

    The floor on r_j is rounding noise of the largest one: it can only shrink the result, and keeps it finite for zero
    columns. r_j is divided by its own value, as a constant, so that its gradient does not overflow.
    """
    limits = torch.finfo(row_sums.dtype)
    row_sums = row_sums.clamp(min=limits.eps * limits.eps)
    constant = row_sums.detach()
    exponent = -(0.5**steps)
    return constant**exponent * (row_sums / constant) ** exponent / divisor.unsqueeze(-1)
