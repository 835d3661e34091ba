"""Proven upper bounds of the norms of convolutions with any stride, dilation, padding and number of groups.

A convolution of stride 1 on an h x w torus acts on every frequency f alone, by the matrix K^(f) = sum_d K[d] e^(i f d):
its norm is max_f ||K^(f)||. All else is reduced to that case by maps of known norm.

* A stride s reads the image through its s * s phases (a pixel unshuffle, which is an isometry): stride 1 on
  s * s times as many channels.
* Zero padding is the restriction to the image of a convolution on a larger torus, where nothing that is kept wraps
  around onto the image; embedding and cropping have norm 1. Any such torus will do, the smallest norm counts.
* Other paddings copy pixels. Where that is not the torus itself, the copying has norm sqrt(copies) along each axis,
  and an unpadded convolution follows.
* Groups act on separate channels: the norm is the *maximum* over the groups.
* Volumes are images (`onelip.linalg.block_taps`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.linalg.block_taps import block_taps, slices_below, volume_torus
from onelip.linalg.fourier import Size, half_width
from onelip.proofs.exact_scaling import scaled
from onelip.proofs.proven import BATCH_ENTRIES, SAFETY, UNIT_ROUNDOFF, gamma, magnitude_norm_bound, norm_bound

_TRIGONOMETRIC_ERROR = 64 * UNIT_ROUNDOFF[torch.float64]
"""Bound of |computed - true| for cos and sin of a sum of two angles below 2 pi.

The angles' rounding contributes at most 16 pi u; the remaining 13 u cover a library that is off by 13 units.
"""


class Convolution(NamedTuple):
    """A convolution's kernel (out, in / groups, kh, kw) and how it reads its input.

    `padding` holds (before, after) for rows and for columns; `mode` is "zeros", "circular", "reflect" or "replicate".
    """

    kernel: Tensor
    stride: Size = (1, 1)
    dilation: Size = (1, 1)
    padding: tuple[Size, Size] = ((0, 0), (0, 0))
    mode: str = "zeros"
    groups: int = 1


class _Axis(NamedTuple):
    """The tori that one axis of a convolution can be reduced to, and the largest number of copies of a pixel."""

    tori: tuple[int, ...]
    copies: int


def same_convolution_of(kernel: Tensor, mode: str) -> Convolution:
    """The convolution of stride 1 that keeps height and width; the kernel has odd sides."""
    rows, columns = kernel.shape[-2] // 2, kernel.shape[-1] // 2
    return Convolution(kernel, padding=((rows, rows), (columns, columns)), mode=mode)


def convolution_norm_bound(convolution: Convolution, size: Size) -> float:
    """Proven upper bound of the norm of a convolution on h x w images."""
    rows, columns = _reduce_axes(convolution, size)
    taps = _single_stride_kernel(convolution)
    strides = convolution.stride
    tori = [(high // strides[0], wide // strides[1]) for high in rows.tori for wide in columns.tori]
    return min(torus_norm_bound(taps, torus) for torus in tori) * math.sqrt(rows.copies * columns.copies) * SAFETY


def convolution_magnitude_bound(convolution: Convolution, size: Size) -> float:
    """Proven upper bound of the norm of the convolution with the entrywise magnitudes of the kernel, on any torus.

    It governs rounding errors. The largest frequency matrix of a non-negative kernel is the one at frequency 0.
    """
    rows, columns = _reduce_axes(convolution, size)
    taps = _single_stride_kernel(convolution)
    parts = scaled(taps)
    if parts is None:
        return math.inf
    relative = (1 + gamma(taps.shape[-2] * taps.shape[-1])) * SAFETY
    bound = parts.restored(magnitude_norm_bound(parts.tensor.abs().sum((-2, -1))) * relative)
    return bound * math.sqrt(rows.copies * columns.copies) * SAFETY


def output_size(convolution: Convolution, size: Size) -> Size:
    """Height and width of the output."""
    lengths = []
    for axis in (0, 1):
        padded = size[axis] + sum(convolution.padding[axis])
        lengths.append((padded - _span(convolution, axis)) // convolution.stride[axis] + 1)
    return lengths[0], lengths[1]


def _span(convolution: Convolution, axis: int) -> int:
    return (convolution.kernel.shape[axis - 2] - 1) * convolution.dilation[axis] + 1


def _reduce_axes(convolution: Convolution, size: Size) -> tuple[_Axis, _Axis]:
    outputs = output_size(convolution, size)
    if min(outputs) < 1:
        raise InvalidInputError(f"an image of {size[0]} x {size[1]} pixels is too small for this convolution")
    rows, columns = (_reduce_axis(convolution, axis, size[axis], outputs[axis]) for axis in (0, 1))
    return rows, columns


def _reduce_axis(convolution: Convolution, axis: int, length: int, outputs: int) -> _Axis:
    """The tori of one axis.

    With zeros around it, the image lies at the places 0 .. length - 1 of a torus of N places, the others hold zeros. An
    output reads positions from -before to length + after - 1 at most. On the torus a position q < 0 is the place q + N,
    which holds a zero if N >= length + before, and a position q >= length is the place q, which exists and holds a zero
    if N >= length + after. The outputs start at multiples of the stride below `read` = outputs * stride, different
    places if N >= read. So every N >= max(length + before, length + after, read) that the stride divides is valid.

    The first choice is the padded image, on whose torus CPL and SLL normalise. A kernel of k taps at distances d may be
    made for the torus of k d places (ECO, a full kernel): its matrices at the frequencies of other tori are others.
    Where k d is valid, it is the second choice. A dilated kernel acts on each residue class mod d alone, and on a torus
    that d divides each class is a torus of its own, the one on which a dilated layer normalises: third choice.
    """
    stride, padding, mode = convolution.stride[axis], convolution.padding[axis], convolution.mode
    read = outputs * stride
    if mode == "zeros":
        padded = -(-max(length + sum(padding), read) // stride) * stride
        period = convolution.kernel.shape[axis - 2] * convolution.dilation[axis]
        is_valid = period >= max(length + max(padding), read) and period % stride == 0
        classes = math.lcm(stride, convolution.dilation[axis])
        whole = -(-padded // classes) * classes
        return _Axis(tuple(dict.fromkeys((padded, *([period] if is_valid else ()), whole))), 1)
    if mode == "circular" and length % stride == 0 and read <= length:
        return _Axis((length,), 1)
    positions = torch.arange(length, dtype=torch.float64)[None, None]
    copied = F.pad(positions, padding, mode=mode).long().flatten()
    needed = max(len(copied), read)
    return _Axis((-(-needed // stride) * stride,), int(copied.bincount().amax()))


def _single_stride_kernel(convolution: Convolution) -> Tensor:
    """Kernel (groups, out / groups, in / groups * s * s, kh', kw') of stride 1 behind a pixel unshuffle by s."""
    single = block_taps(convolution.kernel, convolution.stride, convolution.dilation)
    return single.unflatten(0, (convolution.groups, -1))


def single_stride_shape(convolution: Convolution, size: Size) -> tuple[tuple[int, ...], Size]:
    """Shape of the kernel of stride 1 (groups, out, in, kh, kw) that a convolution is reduced to, and its torus."""
    stride = convolution.stride
    rows, columns = _reduce_axes(convolution, size)
    outputs, inputs = convolution.kernel.shape[0] // convolution.groups, convolution.kernel.shape[1]
    taps = (-(-_span(convolution, axis) // stride[axis]) for axis in (0, 1))
    shape = (convolution.groups, outputs, inputs * stride[0] * stride[1], *taps)
    return shape, (max(rows.tori) // stride[0], max(columns.tori) // stride[1])


def volume_as_images(
    kernel: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]],
    groups: int,
) -> tuple[Convolution, Size]:
    """The convolution of images of stride 1 that one of volumes is part of, and its torus."""
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel.shape[-3:], strict=True)]
    slices, rows, columns = volume_torus(size, spans, stride, padding)
    images = slices_below(block_taps(kernel.detach(), stride, dilation), rows)
    return Convolution(images, groups=groups), (slices * rows, columns)


def volume_norm_bounds(images: Convolution, torus: Size) -> tuple[float, float]:
    """Norms of the convolution of volumes that `volume_as_images` made these of, and of its magnitudes."""
    norm = torus_norm_bound(images.kernel.unflatten(0, (images.groups, -1)), torus)
    return norm, convolution_magnitude_bound(images, torus)


def torus_norm_bound(kernel: Tensor, torus: Size) -> float:
    """Proven upper bound of the norm of circular convolutions with kernels (..., out, in, kh, kw), the largest one.

    The matrices K^(f) are sums of kh kw products computed with cosines and sines, so that in the Frobenius norm their
    errors are at most sqrt(2) (gamma_(kh kw) + the error of a cosine) || sum_d |K[d]| ||_F.
    """
    taps = kernel.detach().flatten(0, -5) if kernel.dim() > 4 else kernel.detach()[None]
    if taps[0, 0, 0].numel() == 1:  # a single tap: its phases are units, and no frequency differs from the others
        return norm_bound(taps[..., 0, 0])
    parts = scaled(taps)
    if parts is None:
        return math.inf
    height, width = (1 if side == 1 else length for side, length in zip(kernel.shape[-2:], torus, strict=True))
    rows = parts.tensor.abs().amax((0, 1, 2, 4)).nonzero().flatten().cpu()  # those of volumes are mostly zero
    rows = rows if len(rows) else torch.arange(1)
    angles = (
        _angles(height, height, rows)[:, None, :, None]
        + _angles(width, half_width(width), torch.arange(taps.shape[-1]))[None, :, None, :]
    )
    angles = angles.flatten(2).flatten(0, 1).to(taps.device)  # (frequencies, taps)
    numbers = parts.tensor[..., rows.to(taps.device), :]
    flat = numbers.movedim((-2, -1), (1, 2)).flatten(1, 2).flatten(2)  # (kernels, taps, out * in)
    magnitude = math.sqrt(float(flat.abs().sum(1).square().sum(-1).amax())) * (1 + gamma(flat[0].numel() + 2))
    error = math.sqrt(2) * (gamma(flat.shape[1]) + 2 * _TRIGONOMETRIC_ERROR) * magnitude * SAFETY
    chunk = max(1, BATCH_ENTRIES // flat[:, 0].numel())
    bound = max(_frequencies_bound(part, flat, taps.shape[1:3], error) for part in angles.split(chunk))
    # A phase has magnitude 1, so that what is unseen in the taps is at most sqrt(taps) times that at a frequency.
    return parts.restored(bound) + math.sqrt(taps[0, 0, 0].numel()) * parts.unseen


def _frequencies_bound(angles: Tensor, flat: Tensor, shape: torch.Size, error: float) -> float:
    matrices = torch.complex(angles.cos() @ flat, angles.sin() @ flat)  # (kernels, frequencies, out * in)
    return norm_bound(matrices.unflatten(-1, shape), error)


def _angles(length: int, count: int, offset: Tensor) -> Tensor:
    """Angles 2 pi (f d mod n) / n; the integers are exact."""
    frequency = torch.arange(count)
    return (frequency[:, None] * offset % length).double() * (2 * math.pi / length)
