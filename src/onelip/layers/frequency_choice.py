"""When a convolution is applied frequency by frequency: on small images with many channels, on CPUs.

The product per frequency takes 4 h (w/2 + 1) c^2 multiply-accumulates in place of k^2 h w c^2. Convolution libraries of
accelerators are fast at k x k taps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onelip.linalg.devices import is_cpu
from onelip.linalg.fourier import Size, half_width, has_one_matrix, real_frequencies

if TYPE_CHECKING:
    from onelip.layers.convolutions import LipschitzConv2d

WHOLE_SHARE = 0.7
"""A convolution on a torus that one matrix transforms (up to 8 x 8) acts on frequencies if that takes less than this
share of its operations: from 32 channels on 8 x 8 images on, measured on a Xeon and an EPYC."""

FREQUENCY_SHARE = 0.35
"""`WHOLE_SHARE` for other tori, of two matrices and more memory traffic: from 128 channels on 16 x 16 images on."""


def frequencies_are_cheaper(layer: LipschitzConv2d, size: Size) -> bool:
    """Whether the frequency domain is cheaper by so much, for core images of this size, that it is so in time too."""
    taps = layer.core_kernel
    if layer.padding_mode != "circular" or taps == (1, 1) or layer.groups > 1 or not is_cpu(layer.weight.device):
        return False
    channels = layer.core_in, layer.core_out
    share = WHOLE_SHARE if has_one_matrix(size) else FREQUENCY_SHARE
    as_kernel = math.prod((*taps, *size, *channels))
    if layer.stride != (1, 1) and not layer.geometry.transposed and layer.keeps_taps:  # applied as torch does it
        as_kernel = math.prod(layer.kernel_size) * math.prod(size) * layer.in_channels * layer.out_channels
    return spectral_operations(size, *channels) < share * as_kernel


def spectral_operations(size: Size, inputs: int, outputs: int) -> int:
    """Multiply-accumulates per image: two real DFTs as matrix products, and a real or complex product per frequency."""
    height, width = size
    if has_one_matrix(size):
        pixels = height * width
        return pixels**2 * (inputs + outputs) + (2 * pixels - real_frequencies(pixels)) * inputs * outputs
    kept = half_width(width)
    rows = 4 * height * height * kept
    transform = 2 * height * kept * width + (rows if height % 2 else rows // 2)  # see `onelip.fast.halved_product`
    return transform * (inputs + outputs) + 4 * height * kept * inputs * outputs
