"""Spectral normalisation with a norm that is proven: W = P / s, s >= ||P||.

Dividing by an estimate of the norm from below, as the usual power iteration gives it, leaves layers of norm above 1.
Here s is the bound of a Gram iteration (Delattre et al., 2023), in training and in evaluation alike: for a convolution
the largest one over the frequencies of its torus, which is larger than the image by k - 1 with zero padding. A zero
weight stays zero.

`FrobeniusConv2d` takes a bound that costs next to nothing and loses much: ||K^(f)||_2 <= ||K^(f)||_F at every
frequency f, and |K^(f)_oi| is at most the sum of the magnitudes of the taps of o and i, so that
s = sqrt(sum_oi (sum_t |K_oit|)^2) bounds the norm for every image size. An orthogonal 1 x 1 kernel of c channels is
divided by sqrt(c).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from onelip.layers.info import Complexity, MethodInfo
from onelip.layers.spatial import KernelConv2d, MatrixLinear
from onelip.layers.transformed import Kernel, Matrix
from onelip.linalg.fourier import Size
from onelip.linalg.norms import conv_norm_bound, gram_norm_bound, over_norm

GRAM_ITERATIONS = 7
"""The bound then exceeds the norm of a matrix of rank 64 by at most 1.6 %, in general by far less."""


class SpectralConv2d(KernelConv2d):
    """Convolution with a kernel divided by a proven bound of its norm on images of the given size."""

    keeps_directions = True
    holds_for_volumes = True

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight and bias; a 1 x 1 kernel is the same matrix at all frequencies, whatever the size."""
        super().create_parameters(bias, factory)
        self.size_dependent = self.core_kernel != (1, 1)

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Kernel:
        """K / s."""
        kernel = tensors["weight"]
        if size is None:
            norm = gram_norm_bound(kernel[..., 0, 0], GRAM_ITERATIONS)
        else:
            norm = conv_norm_bound(kernel, size, self.padding_mode, GRAM_ITERATIONS)
        return Kernel(over_norm(kernel, norm), self.padding_mode)


class FrobeniusConv2d(SpectralConv2d):
    """Convolution with a kernel divided by a Frobenius norm; cheap, and for layers of few channels only."""

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Weight and bias; the bound holds for all sizes."""
        super().create_parameters(bias, factory)
        self.size_dependent = False

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Kernel:
        """K / s."""
        kernel = tensors["weight"]
        taps = kernel.abs().sum((-2, -1))
        largest = taps.detach().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(taps.dtype).tiny)
        norm = torch.linalg.vector_norm(taps / largest, dim=(-2, -1)) * largest[..., 0, 0]  # squares do not underflow
        return Kernel(over_norm(kernel, norm), self.padding_mode)


class SpectralLinear(MatrixLinear):
    """Linear layer with a matrix divided by a proven bound of its norm."""

    keeps_directions = True

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Matrix:
        """P / s."""
        matrix = tensors["weight"]
        return Matrix(over_norm(matrix, gram_norm_bound(matrix, GRAM_ITERATIONS)))


METHOD = MethodInfo(
    key="spectral",
    title="Spectral normalisation",
    paper="Efficient Bound of Lipschitz Constant for Convolutional Layers by Gram Iteration",
    year=2023,
    link="https://arxiv.org/abs/2305.16173",
    guarantee="bounded",
    linear=True,
    conv=SpectralConv2d,
    linear_layer=SpectralLinear,
    learning_rate=0.05,
    published=Complexity(
        input_operations="CONV",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="FFT & MMs",
        parameter_macs="s**2*c**3*t/2",
        parameter_memory="s**2*c**2*t",
    ),
    ours=Complexity(
        input_operations="CONV, or by frequency",
        input_macs="b*s**2*c**2*k**2",
        input_memory="b*s**2*c",
        parameter_operations="real DFT & 7 MMs",
        parameter_macs="15*s**2*c**3",
        parameter_memory="2*c**2*k**2",
    ),
)
