"""What is proven about convolutions of volumes, as ones of images (`onelip.linalg.block_taps`)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from onelip.linalg.block_taps import block_taps, slices_below, volume_torus
from onelip.linalg.fourier import Size
from onelip.proofs.proven_convolution import Convolution, convolution_magnitude_bound, torus_norm_bound


def as_images(
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
    """Norms of the convolution of volumes with zero padding that `as_images` made these of, and of its magnitudes."""
    norm = torus_norm_bound(images.kernel.unflatten(0, (images.groups, -1)), torus)
    return norm, convolution_magnitude_bound(images, torus)
