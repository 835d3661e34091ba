"""Spectral normalisation with a norm that is proven: W = P / s, s >= ||P||.

Dividing by an estimate of the norm from below, as the usual power iteration gives it, leaves layers of norm above 1.
Here s is the bound of a Gram iteration (Delattre et al., 2023): for a convolution the largest one over the frequencies
of its torus, which is larger than the image by k - 1 with zero padding. A zero weight stays zero. Training alone, which
certifies nothing, divides by an estimate (`onelip.layers.power_vectors`).

`FrobeniusConv2d` takes a bound that costs next to nothing and loses much: ||K^(f)||_2 <= ||K^(f)||_F at every
frequency f, and |K^(f)_oi| is at most the sum of the magnitudes of the taps of o and i, so that
s = sqrt(sum_oi (sum_t |K_oit|)^2) bounds the norm for every image size. An orthogonal 1 x 1 kernel of c channels is
divided by sqrt(c).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from onelip.layers.contract import Request, Traits
from onelip.layers.kernel_layers import KernelConv2d, MatrixLinear
from onelip.layers.operators import Kernel, Matrix
from onelip.layers.power_vectors import PowerVectors
from onelip.layers.registry import MethodInfo
from onelip.linalg.norms import over_norm

TRAITS = Traits(keeps_directions=True, holds_for_volumes=True)


class SpectralConv2d(PowerVectors, KernelConv2d):
    """Convolution with a kernel divided by its norm on images of the given size, which evaluation proves."""

    traits = TRAITS

    @property
    def size_dependent(self) -> bool:
        """A 1 x 1 kernel is the same matrix at all frequencies, whatever the size."""
        return self.core_kernel != (1, 1)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Kernel:
        """K / s."""
        norm, state = self.norm(tensors, request)
        return Kernel(over_norm(tensors["weight"], norm), self.padding_mode, state=state)


class FrobeniusConv2d(KernelConv2d):
    """Convolution with a kernel divided by a Frobenius norm; cheap, and for layers of few channels only."""

    traits = TRAITS

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Kernel:
        """K / s."""
        kernel = tensors["weight"]
        taps = kernel.abs().sum((-2, -1))
        largest = taps.detach().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(taps.dtype).tiny)
        norm = torch.linalg.vector_norm(taps / largest, dim=(-2, -1)) * largest[..., 0, 0]  # squares do not underflow
        return Kernel(over_norm(kernel, norm), self.padding_mode)


class SpectralLinear(PowerVectors, MatrixLinear):
    """Linear layer with a matrix divided by its norm, which evaluation proves."""

    traits = TRAITS

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Matrix:
        """P / s."""
        norm, state = self.norm(tensors, request)
        return Matrix(over_norm(tensors["weight"], norm), state=state)


METHOD = MethodInfo(
    key="spectral",
    guarantee="bounded",
    conv=SpectralConv2d,
    linear_layer=SpectralLinear,
    train_eval_difference="training estimates the norm of the weight, evaluation bounds it from above",
    training_approximation="the norm from below, by a vector per frequency that follows the weight",
    training_error=0.03,
)
