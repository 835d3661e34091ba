"""Proven norms of convolutions on volumes: the third axis is taken apart by its frequencies.

Along the depth the convolution is embedded in a torus, behind a reshape that turns a stride into channels. At each
frequency f of that axis stands a convolution of images with the complex kernel sum_d K[d] e^(i f d) = A + i B, whose
norm is that of the real kernel [[A, -B], [B, A]] with twice as many channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from onelip.linalg.proven import SAFETY, vector_norm_bound
from onelip.linalg.proven_convolution import Convolution, convolution_magnitude_bound, convolution_norm_bound

_PHASE_ERROR = 2.0**-44
"""Bound of the error of a computed cosine or sine, and of the product with it, relative to the kernel's entries."""


def volume_norm_bounds(
    kernel: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]],
    groups: int,
) -> tuple[float, float]:
    """Norms of a convolution (out, in / groups, kd, kh, kw) with zero padding, and of its magnitudes."""
    found = [_one_group(part, size, stride, dilation, padding) for part in kernel.detach().double().chunk(groups)]
    return max(norm for norm, _ in found), max(magnitude for _, magnitude in found)


def _one_group(
    kernel: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> tuple[float, float]:
    step, span = stride[0], (kernel.shape[2] - 1) * dilation[0] + 1
    dense = kernel.new_zeros(*kernel.shape[:2], -(-span // step) * step, *kernel.shape[3:])
    dense[:, :, : span : dilation[0]] = kernel
    taps = dense.unflatten(2, (-1, step)).transpose(2, 3).flatten(1, 2)  # out, in * step, taps, kh, kw
    length = size[0] + sum(padding[0])
    torus = max(-(-length // step), (length - span) // step + 1, taps.shape[2])
    image = size[1], size[2]

    def images(kernel_at: Tensor) -> Convolution:
        return Convolution(
            kernel_at, (stride[1], stride[2]), (dilation[1], dilation[2]), (padding[1], padding[2]), "zeros"
        )

    error = _PHASE_ERROR * vector_norm_bound(taps) * math.sqrt(taps[0, 0].numel()) * 2
    norms = []
    for frequency in range(torus // 2 + 1):
        turns = (torch.arange(taps.shape[2]) * frequency % torus).double() * (2 * math.pi / torus)
        real, imaginary = ((taps * wave[:, None, None]).sum(2) for wave in (turns.cos(), turns.sin()))
        doubled = torch.cat([torch.cat([real, -imaginary], 1), torch.cat([imaginary, real], 1)], 0)
        norms.append(convolution_norm_bound(images(doubled), image))
    magnitude = convolution_magnitude_bound(images(taps.abs().sum(2)), image)
    return (max(norms) + error) * SAFETY, magnitude * (1 + 2.0**-40)
