"""Convolutions with strides as ones of stride 1 on unshuffled pixels, and convolutions of volumes as ones of images.

The slices of a volume are written one below the other, `distance` rows apart with zeros between them, and so are those
of the kernel. A tap that lies dz slices and dy rows away is then dz * distance + dy rows away. If the distance is the
length of a torus that suits the rows, a row before or behind a slice is one of those zeros, and if there are as many
slices as suit the depth, so is a slice before or behind the volume: the convolution of the volume is the restriction of
one on a torus of images, and embedding and cropping have norm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

Volume = tuple[int, int, int]


def block_taps(kernel: Tensor, stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """Kernel (..., out, in s s, mh, mw) of stride 1 on unshuffled pixels, of (..., out, in, kh, kw); so for voxels.

    Output i of a convolution of stride s reads the pixels s i + d t for taps t = 0 .. k - 1. With d t = s a + r,
    0 <= r < s, that is pixel i + a of the unshuffled channel r: there are m = ceil((d (k - 1) + 1) / s) taps a side,
    and those that are none of the d t are zero.
    """
    axes = len(stride)
    for axis, (step, spread) in enumerate(zip(stride, dilation, strict=True)):
        dim = axis - axes
        taps = kernel.shape[dim]
        if spread > 1:  # `spread - 1` zeros behind every tap
            kernel = F.pad(kernel.movedim(dim, -1).unsqueeze(-1), (0, spread - 1)).flatten(-2).movedim(-1, dim)
        span = spread * (taps - 1) + 1
        kernel = kernel.narrow(dim, 0, span)
        if step > 1:
            kernel = F.pad(kernel.movedim(dim, -1), (0, -span % step)).unflatten(-1, (-1, step))
            kernel = kernel.movedim(-2, dim - 1).movedim(-1, -axes - 1).flatten(-axes - 2, -axes - 1)
    return kernel


def taps_of_blocks(blocks: Tensor, sides: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """Inverse of `block_taps`, for a kernel of these sides."""
    axes = len(stride)
    for axis in reversed(range(axes)):
        dim, step, spread = axis - axes, stride[axis], dilation[axis]
        if step > 1:
            blocks = blocks.unflatten(-axes - 1, (-1, step)).movedim(-axes - 1, -1)
            blocks = blocks.movedim(dim - 1, -2).flatten(-2).movedim(-1, dim)
        every = [slice(None)] * blocks.dim()
        every[dim] = slice(0, spread * (sides[axis] - 1) + 1, spread)
        blocks = blocks[tuple(every)]
    return blocks


def slices_below(kernel: Tensor, distance: int) -> Tensor:
    """Kernel (..., kd, kh, kw) of volumes to that of images (..., (kd - 1) distance + kh, kw)."""
    height = kernel.shape[-2]
    rows = F.pad(kernel, (0, 0, 0, distance - height)).flatten(-3, -2)
    return rows.narrow(-2, 0, rows.shape[-2] - distance + height)


def slices_of(image: Tensor, distance: int, sides: Sequence[int]) -> Tensor:
    """Inverse of `slices_below` for a kernel of these sides; rows and columns beyond it are zero."""
    depth, height, width = sides
    rows = image.narrow(-2, 0, (depth - 1) * distance + height)
    whole = F.pad(rows, (0, 0, 0, distance - height)).unflatten(-2, (depth, distance))
    return whole[..., :height, :width]


def volume_torus(
    size: Sequence[int], spans: Sequence[int], stride: Sequence[int], padding: Sequence[tuple[int, int]]
) -> Volume:
    """Blocks along each axis of a torus on which nothing that is read or kept wraps around onto the volume.

    As that of images in `onelip.proofs.proven_convolution`: it holds the padded volume and all outputs.
    """
    found = []
    for length, span, step, sides in zip(size, spans, stride, padding, strict=True):
        padded = length + sum(sides)
        found.append(-(-max(padded, ((padded - span) // step + 1) * step) // step))
    return found[0], found[1], found[2]
