"""ECO: explicitly constructed orthogonal convolutions (Yu et al., 2022), repaired for every image size.

Orthogonal matrices at the k x k frequencies of a k x k torus belong to a kernel K of k x k taps. On a torus of
n = k d pixels, the convolution with K *dilated by d* has exactly these matrices, each d times, at its frequencies:
it is orthogonal. (It mixes the k pixels p, p + d, p + 2d, ... of each residue class modulo d, a torus of its own,
which is how it is computed here.) Where k does not divide n that fails, and the original has norms of 1.7; here the
image is embedded in the next larger torus that k divides and the result is cropped, which is 1-Lipschitz always.
With zero padding the torus is so large that nothing which is kept wraps around.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.base import Transformed
from onelip.layers.convolution import channels_innermost
from onelip.layers.fused import FusedLayer, PaddingMode, frozen_conv
from onelip.layers.info import Complexity, MethodInfo
from onelip.layers.shapes import LipschitzConv2d
from onelip.layers.spatial import MatrixLinear
from onelip.layers.spectral_conv import (
    embedded,
    frequencies_are_cheaper,
    spectral_convolution,
    with_dft,
)
from onelip.linalg.fourier import Size, frequency_to_kernel, join_complex, split_complex, torus_matrices
from onelip.linalg.polar import polar_factor


def dilation_on(size: Size, side: int, padding_mode: PaddingMode) -> Size:
    """Dilation d of the k x k kernel, on a torus of k d pixels a side.

    Circular: the smallest torus for n pixels, d = ceil(n / k). Zero padding: n + d (k // 2) pixels, so that a kernel
    that reaches d (k // 2) pixels far finds zeros there, hence d = ceil(n / ((k + 1) / 2)).
    """
    share = side if padding_mode == "circular" else (side + 1) // 2
    return -(-size[0] // share), -(-size[1] // share)


def circulant(kernel: Tensor) -> Tensor:
    """The circular convolution on the k x k torus as one matrix (..., k k in, k k out) on rows of (pixel, channel).

    y[q] = sum_d K[d] x[q + d - k // 2], so that the pixel p meets the tap p - q + k // 2 modulo k.
    """
    side = kernel.shape[-1]
    pixel = torch.arange(side, device=kernel.device)
    tap = (pixel[:, None] - pixel + side // 2) % side
    taps = kernel.movedim((-2, -1), (-4, -3)).mT  # (..., k, k, in, out)
    pairs = taps[..., tap[:, None, :, None], tap[None, :, None, :], :, :]  # (..., p, p, q, q, in, out)
    return pairs.movedim(-2, -4).flatten(-3).flatten(-4, -2)


def dilated_convolution(
    x: Tensor, transformed: Mapping[str, Tensor], bias: Tensor | None, side: int, padding_mode: PaddingMode
) -> Tensor:
    """The k x k convolution on every residue class of pixels modulo its dilation, by frequency or by one matrix."""
    batch, channels, height, width = x.shape
    rows, columns = dilation_on((height, width), side, padding_mode)
    x = embedded(channels_innermost(x), (side * rows, side * columns))
    apply = _apply_dense if "dense" in transformed else _apply_frequencies
    y = apply(x.reshape(batch, channels, side, rows, side, columns), transformed, bias)
    return y.flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)[..., :height, :width]


def _apply_frequencies(x: Tensor, transformed: Mapping[str, Tensor], bias: Tensor | None) -> Tensor:
    """(batch, in, side, rows, side, columns) to (batch, side, rows, side, columns, out).

    One copy puts the classes in the layout of the DFT, (k, k, classes, channels), and one brings them back.
    """
    batch, channels, side, rows, _, columns = x.shape
    classes = x.permute(2, 4, 0, 3, 5, 1).reshape(side, side, -1, channels).permute(2, 3, 0, 1)
    y = spectral_convolution(classes, transformed, bias)
    return y.unflatten(0, (batch, rows, columns)).permute(0, 4, 1, 5, 2, 3)


def _apply_dense(x: Tensor, transformed: Mapping[str, Tensor], bias: Tensor | None) -> Tensor:
    """As `_apply_frequencies`, with a class of k k pixels as one row."""
    batch, channels, side, rows, _, columns = x.shape
    classes = x.permute(0, 3, 5, 2, 4, 1).reshape(-1, side * side * channels)
    y = F.linear(classes, transformed["dense"].mT, None if bias is None else bias.repeat(side * side))
    return y.reshape(batch, rows, columns, side, side, -1).permute(0, 3, 1, 4, 2, 5)


class ECOConv2d(LipschitzConv2d):
    """Dilated convolution with orthogonal frequency matrices, whose kernel spans the whole torus."""

    fuses_cheapest_form = False  # the kernel of a plain convolution comes from the frequencies

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """Polar factors at the k x k frequencies."""
        matrices = polar_factor(torus_matrices(tensors["weight"], self.kernel_size))
        return with_dft(split_complex(matrices), self.kernel_size)

    def choose_form(self, transformed: Transformed, size: Size | None) -> Transformed:
        """One matrix per class, {"dense"}, where few channels make the DFT the larger part of the work."""
        channels = self.core_in, self.core_out
        if frequencies_are_cheaper(self.kernel_size, *channels, math.prod(self.kernel_size) ** 2 * math.prod(channels)):
            return transformed
        return {"dense": circulant(self._kernel(transformed))}

    def _kernel(self, transformed: Transformed) -> Tensor:
        return frequency_to_kernel(join_complex(transformed["matrices"], self.kernel_size), self.kernel_size)

    def apply_core(self, x: Tensor, transformed: Transformed) -> Tensor:
        """The dilated convolution by residue classes."""
        return dilated_convolution(x, transformed, self.bias, self.kernel_size[0], self.padding_mode)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """A plain dilated convolution where the size is told and, if circular, k divides it; else the same as here."""
        side = self.kernel_size[0]
        if size is None or (self.padding_mode == "circular" and (size[0] % side or size[1] % side)):
            return FusedECOConv2d(self.choose_form(transformed, size), self.bias, side, self.padding_mode)
        dilation = dilation_on(size, side, self.padding_mode)
        return frozen_conv(self._kernel(transformed), self.bias, self.padding_mode, dilation=dilation)


class FusedECOConv2d(FusedLayer):
    """ECO's convolution with fixed matrices, for every image size."""

    def __init__(
        self, transformed: Mapping[str, Tensor], bias: Tensor | None, side: int, padding_mode: PaddingMode
    ) -> None:
        super().__init__(transformed, bias)
        self.side = side
        self.padding_mode: PaddingMode = padding_mode

    def forward(self, x: Tensor) -> Tensor:
        """The dilated convolution by residue classes."""
        return dilated_convolution(x, self.tensors(), self.bias, self.side, self.padding_mode)


class ECOLinear(MatrixLinear):
    """Linear layer with the polar factor of its matrix: a 1 x 1 ECO convolution."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """Polar factor."""
        return {"matrix": polar_factor(tensors["weight"])}


METHOD = MethodInfo(
    key="eco",
    title="ECO",
    paper="Constructing Orthogonal Convolutions in an Explicit Manner",
    year=2022,
    link="https://openreview.net/forum?id=Zr5W2LSRhD",
    guarantee="orthogonal",
    linear=True,
    conv=ECOConv2d,
    linear_layer=ECOLinear,
    learning_rate=0.05,
    published=Complexity(
        input_operations="CONV",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="FFT & MMs",
        parameter_macs="c**3*k**2*t",
        parameter_memory="c**2*k**2*t",
    ),
    ours=Complexity(
        input_operations="real DFTs & MVs",
        input_macs="2*b*s**2*c**2*(k + 1)/k + 6*b*s**2*c*(k + 1)",
        input_memory="b*s**2*c*(2*k + 1)/k",
        parameter_operations="real DFT; Gram, eigh & 2 MMs in float64",
        parameter_macs="15*c**3*k*(k + 1)",
        parameter_memory="c**2*k**2 + 5*c**2*k*(k + 1)",
    ),
)
