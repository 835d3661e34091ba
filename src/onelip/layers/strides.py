"""Strides: torch's k x k taps, every s pixels, as a convolution of stride 1 on unshuffled pixels, and back.

Output i of a convolution of stride s reads the pixels s i + t for taps t = 0 .. k - 1. With t = s a + r, 0 <= r < s,
that is pixel i + a of the unshuffled channel r. So the core, on s * s times as many channels, has m = ceil(k / s) taps
a side, those with s a + r >= k being zero. Constraining the core constrains the convolution, and once it has a kernel
the convolution is applied as torch does it: k * k taps, nothing unshuffled.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.linalg.fourier import Size


def blocks_of(length: int, step: int) -> int:
    """How many blocks of `step` pixels it takes to hold `length` of them."""
    return -(-length // step)


def taps_on_blocks(taps: Tensor, stride: Size, *, transposed: bool = False) -> Tensor:
    """(..., out, in, kh, kw) to (..., out, in s s, mh, mw), or transposed to (..., out s s, in, mh, mw)."""
    height, width = (blocks_of(taps.shape[axis], stride[axis]) * stride[axis] for axis in (-2, -1))
    taps = F.pad(taps, (0, width - taps.shape[-1], 0, height - taps.shape[-2]))
    taps = taps.unflatten(-1, (-1, stride[1])).unflatten(-3, (-1, stride[0]))  # (..., out, in, mh, sh, mw, sw)
    if transposed:
        return taps.movedim((-3, -1), (-5, -4)).flatten(-6, -4)
    return taps.movedim((-3, -1), (-4, -3)).flatten(-5, -3)


def taps_of_blocks(core: Tensor, stride: Size, kernel_size: Size) -> Tensor:
    """Inverse of `taps_on_blocks`, for a kernel of this size whose further taps are zero."""
    taps = core.unflatten(-3, (-1, *stride)).movedim((-4, -3), (-3, -1)).flatten(-2).flatten(-3, -2)
    return taps[..., : kernel_size[0], : kernel_size[1]]


def strided_convolution(
    x: Tensor,
    taps: Tensor,
    bias: Tensor | None,
    stride: Size,
    front: Size,
    counts: Size,
    *,
    circular: bool,
    groups: int = 1,
) -> Tensor:
    """`counts` outputs of a convolution with these taps, the first of which reads from `front` pixels before x on."""
    needed = [s * (count - 1) + k for s, count, k in zip(stride, counts, taps.shape[-2:], strict=True)]
    behind = [n - f - length for n, f, length in zip(needed, front, x.shape[-2:], strict=True)]
    sides = (front[1], max(behind[1], 0), front[0], max(behind[0], 0))
    if circular:
        for dim, before, after in ((-2, *sides[2:]), (-1, *sides[:2])):
            x = _continued(x, dim, before, after)
    elif any(sides):
        x = F.pad(x, sides)
    return F.conv2d(x, taps, bias, stride, groups=groups)[..., : counts[0], : counts[1]]


def _continued(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    """The image on a circle with so many pixels more on either side."""
    if before == 0 and after == 0:
        return x
    places = torch.arange(-before, x.shape[dim] + after, device=x.device).remainder(x.shape[dim])
    return x.index_select(dim, places)
