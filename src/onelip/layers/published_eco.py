"""ECO as published, which is not 1-Lipschitz: kept to show the defect that the comparison paper reports.

Five skew-symmetric matrices, divided by their norms, have truncated exponentials E_0, ..., E_4; each belongs to a
frequency f of the 3 x 3 torus and to -f, so that the kernel, the inverse DFT of them, is real. On images of n pixels a
side it is dilated by d = ceil(n / 3) and wraps around after n pixels. That is orthogonal where 3 divides n; else the
torus of n pixels is not the one of 3 d pixels that the matrices belong to, and norms are 1.7 on 8 x 8 images. (The
published code also computes in half precision, and estimates the norms; neither is imitated.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError, UnknownLipschitzConstant
from onelip.layers.initialisation import PUBLISHED_INITIALISATIONS, start_bias_uniformly
from onelip.layers.shapes import LipschitzConv2d, ParametrisedLayer
from onelip.layers.spatial import MatrixLinear
from onelip.layers.transformed import Kernel, Matrix, Transformed
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound

TERMS = {True: 5, False: 10}
"""Terms of the exponential after the identity, in training and in evaluation."""

_MATRIX_AT = (0, 1, 1, 2, 3, 4, 2, 4, 3)
"""Which of the five matrices belongs to each of the 3 x 3 frequencies: that of f is that of -f."""


def truncated_exponentials(weight: Tensor, terms: int) -> Tensor:
    """sum_(j <= terms) A^j / j! for A = (W - W^T) / ||W - W^T||."""
    skew = weight - weight.mT
    unit = skew / torch.linalg.matrix_norm(skew, 2, keepdim=True).clamp_min(torch.finfo(skew.dtype).tiny)
    total = power = torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device).expand_as(weight)
    for index in range(1, terms + 1):
        power = power @ unit / index
        total = total + power
    return total


@dataclass(frozen=True)
class PublishedDilation(Transformed):
    """The 3 x 3 kernel dilated by ceil(n / 3), on the torus of the image."""

    kernel: Tensor

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Circular padding by the dilation, one convolution."""
        rows, columns = (-(-side // 3) for side in x.shape[-2:])
        padded = F.pad(x, (columns, columns, rows, rows), mode="circular")
        return F.conv2d(padded, self.kernel, bias, dilation=(rows, columns))

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """None is stated."""
        raise UnknownLipschitzConstant(
            "the published ECO is orthogonal only where 3 divides the image and has norms of up to 1.75 elsewhere; "
            'use variant="own"'
        )


class _PublishedECO(ParametrisedLayer):
    initialisations = PUBLISHED_INITIALISATIONS
    square = True
    has_guarantee = False

    def start(self) -> None:
        """Normal entries of deviation c^(-1/2), and a bias as torch's default for c inputs, whatever `init`."""
        nn.init.normal_(self.weight, std=self.core_out**-0.5)
        start_bias_uniformly(self.bias, self.core_out)


class PublishedECOConv2d(_PublishedECO, LipschitzConv2d):
    """The published convolution, for kernels of 3 x 3 and 1 x 1, circular."""

    padding_modes = ("circular",)

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """The matrices and a bias."""
        if self.kernel_size not in ((1, 1), (3, 3)):
            raise InvalidInputError(f"the published ECO has kernels of 3 x 3 and 1 x 1, not {self.kernel_size}")
        super().create_parameters(bias, factory)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Five square matrices, or one."""
        return 1 if self.kernel_size == (1, 1) else 5, self.core_out, self.core_out

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """The inverse DFT of the exponentials."""
        matrices = truncated_exponentials(tensors["weight"], TERMS[self.training])
        if self.kernel_size == (1, 1):
            return Kernel(matrices[..., 0, :, :, None, None], self.padding_mode)
        spectrum = matrices[..., _MATRIX_AT, :, :].movedim(-3, -1).unflatten(-1, (3, 3))
        return PublishedDilation(torch.fft.ifft2(spectrum).real)


class PublishedECOLinear(_PublishedECO, MatrixLinear):
    """A truncated exponential."""

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Matrix:
        """The exponential."""
        return Matrix(truncated_exponentials(tensors["weight"], TERMS[self.training]))
