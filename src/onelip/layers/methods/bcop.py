"""BCOP: block convolution orthogonal parameterisation (Li et al., 2019).

For a symmetric projection P, the 1-D kernel [P, I - P] is orthogonal: at the frequency z its matrix P + (I - P) z
is unitary. Products of k - 1 vertical and k - 1 horizontal ones, with an orthogonal matrix H, give an orthogonal
k x k convolution. Each P = R R^T has half rank, R with c x c/2 orthonormal columns, so that there are k c^2
parameters. Where R is only nearly orthonormal, its norm is below 1, P has eigenvalues p in [0, 1], and
|p + (1 - p) z| <= 1: the layer stays 1-Lipschitz. For in != out, H has orthonormal rows or columns, and the
projections act on the side with fewer channels.

A stride s is that of AOC (Boissin et al., 2025; arXiv 2501.07930): H maps patches of s x s pixels, which do not
overlap, and behind k - s projections along each axis the whole has k x k taps. The max(in, out // s^2) channels
between come from the input by another orthogonal matrix where there are more of them. A transposed convolution is the
adjoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.contract import Request, Traits
from onelip.layers.initialisation import (
    PUBLISHED_INITIALISATIONS,
    draw_orthogonal,
    initialise,
    initialise_bias_uniformly,
)
from onelip.layers.kernel_layers import KernelConv2d, PolarLinear
from onelip.layers.operators import Kernel
from onelip.layers.registry import MethodInfo
from onelip.linalg.fourier import Size
from onelip.linalg.polar import training_polar_factor


def axes_of_factors(kernel_size: Size) -> list[int]:
    """The axis along which each projection acts, 0 or 1 in turn, as long as both have taps left."""
    turns = ((turn, axis) for axis in (0, 1) for turn in range(kernel_size[axis] - 1))
    return [axis for _, axis in sorted(turns)]


def behind_projections(kernel: Tensor, factors: Tensor, axes: Sequence[int]) -> Tensor:
    """A kernel (..., h, w, out, c) times [P, I - P], P = R R^T, along each axis in turn; factors are (..., n, c, c/2).

    With Y = X P for the taps X so far, tap j of the product is Y[j] + (X - Y)[j - 1]: as many products as there are
    taps, and P itself is never made.
    """
    *lead, count, channels, rank = factors.shape
    factors = factors.reshape(-1, count, channels, rank)
    kernel = kernel.reshape(len(factors), *kernel.shape[-4:])
    for index, axis in enumerate(axes):
        factor, length = factors[:, index], kernel.shape[axis + 1]
        projected = torch.bmm(torch.bmm(kernel.flatten(1, 3), factor), factor.mT).view(kernel.shape)
        rest = kernel - projected
        first, last = projected.narrow(axis + 1, 0, 1), rest.narrow(axis + 1, length - 1, 1)
        between = projected.narrow(axis + 1, 1, length - 1) + rest.narrow(axis + 1, 0, length - 1)
        kernel = torch.cat([first, between, last] if length > 1 else [first, last], dim=axis + 1)
    return kernel.reshape(*lead, *kernel.shape[1:])


class BCOPConv2d(KernelConv2d):
    """Convolution with a kernel built from one orthogonal matrix and 2 (k - 1) half-rank projections."""

    traits = Traits(initialisations=PUBLISHED_INITIALISATIONS, orthogonal_by_rank=True, zero_channels_stay_zero=True)

    factors: nn.Parameter
    entrance: nn.Parameter

    @property
    def patch(self) -> Size:
        """Pixels that H maps to one output: those of the stride that the kernel reads, one without a stride."""
        return min(self.kernel_size[0], self.stride[0]), min(self.kernel_size[1], self.stride[1])

    @property
    def projection_sides(self) -> Size:
        """Sides of the kernel that is the product of all projections."""
        return self.kernel_size[0] - self.patch[0] + 1, self.kernel_size[1] - self.patch[1] + 1

    @property
    def ends(self) -> tuple[int, int]:
        """Channels on the side of the pixels and of the patches: inputs and outputs, if transposed the other way."""
        ends = self.in_channels // self.groups, self.out_channels // self.groups
        return (ends[1], ends[0]) if self.geometry.transposed and self.stride != (1, 1) else ends

    @property
    def middle(self) -> int:
        """Channels that the projections act on."""
        inputs, outputs = self.ends
        return min(inputs, outputs) if self.stride == (1, 1) else max(inputs, outputs // math.prod(self.patch))

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """H, the factors R of the projections (none for 1 x 1 kernels), the matrix in front of them, and the bias."""
        inputs, outputs = self.ends
        columns = inputs if self.stride == (1, 1) else self.middle * math.prod(self.patch)
        shapes = {**super().tensor_shapes(), "weight": (outputs, columns)}
        count, rank = sum(self.projection_sides) - 2, self.middle // 2
        if count and rank:
            shapes["factors"] = count, self.middle, rank
        if self.stride != (1, 1) and self.middle > inputs:
            shapes["entrance"] = self.middle, inputs
        return shapes

    def initialise(self, tensors: dict[str, Tensor]) -> None:
        """Draw all matrices as `init` says."""
        super().initialise(tensors)
        if "entrance" in tensors:
            draw_orthogonal(tensors["entrance"])
        if "factors" not in tensors or self.init == "published":
            return
        name = self.default_init() if self.init == "auto" else self.init
        if name == "identity":
            self._initialise_with_cancelling_factors(tensors["factors"])
        else:
            for factor in tensors["factors"]:
                initialise(factor, name)

    def initialise_as_published(self, tensors: dict[str, Tensor]) -> None:
        """Random orthogonal matrices of gain c^(-1/2).

        A polar factor does not see the gain g of its argument, but its gradient does: steps are larger by 1 / g^2. The
        published projections take half of the columns of a polar factor of c x c, where here the factor itself has
        half of the columns. Its projection then moves twice as fast, which a gain of (2 / c)^(1/2) undoes.
        """
        channels = max(self.core_in, self.core_out)
        draw_orthogonal(tensors["weight"], gain=channels**-0.5)
        for factor in tensors.get("factors", ()):
            draw_orthogonal(factor, gain=(2 / channels) ** 0.5)
        initialise_bias_uniformly(tensors.get("bias"), self.core_out)

    def _initialise_with_cancelling_factors(self, factors: Tensor) -> None:
        """Along each axis R in the first half of the factors, its complement in the rest.

        (P + (I - P) z)((I - P) + P z) = z I, because P (I - P) = 0: for odd sides the product is the centre tap alone.
        """
        whole = factors.new_empty(factors.shape[1], factors.shape[1])
        draw_orthogonal(whole)
        rank, axes = factors.shape[2], axes_of_factors(self.projection_sides)
        for index, axis in enumerate(axes):
            earlier = axes[:index].count(axis)
            factors[index] = whole[:, :rank] if earlier < axes.count(axis) / 2 else whole[:, -rank:]

    def orthonormal(self, matrix: Tensor, request: Request) -> Tensor:
        """The polar factor."""
        return training_polar_factor(matrix, request.approximate)

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Request) -> Kernel:
        """Orthogonalise, then multiply out."""
        if self.stride != (1, 1):
            return Kernel(self.core_taps(self._strided_kernel(tensors, request)), self.padding_mode)
        matrix = self.orthonormal(tensors["weight"], request)[..., None, None, :, :]
        if "factors" in tensors:
            factors, axes = self.orthonormal(tensors["factors"], request), axes_of_factors(self.kernel_size)
            if self.core_out < self.core_in:  # projections are symmetric: the transpose has them in reverse order
                matrix = behind_projections(matrix.mT, factors.flip(-3), axes[::-1]).mT
            else:
                matrix = behind_projections(matrix, factors, axes)
            return Kernel(self.core_taps(matrix.movedim((-4, -3), (-2, -1))), self.padding_mode)
        rows, columns = self.core_kernel[0] // 2, self.core_kernel[1] // 2
        kernel = F.pad(matrix.movedim((-4, -3), (-2, -1)), (columns, columns, rows, rows))
        return Kernel(kernel, self.padding_mode)

    def _strided_kernel(self, tensors: Mapping[str, Tensor], request: Request) -> Tensor:
        """H on patches, behind the projections: (..., out, in, kh, kw)."""
        patches = self.orthonormal(tensors["weight"], request).unflatten(-1, (self.middle, *self.patch))
        kernel = patches.movedim((-2, -1), (-4, -3))
        if "factors" in tensors:
            axes = axes_of_factors(self.projection_sides)
            kernel = behind_projections(kernel, self.orthonormal(tensors["factors"], request), axes)
        if "entrance" in tensors:
            kernel = kernel @ self.orthonormal(tensors["entrance"], request)[..., None, None, :, :]
        kernel = kernel.movedim((-4, -3), (-2, -1))
        rows, columns = (k - n for k, n in zip(self.kernel_size, kernel.shape[-2:], strict=True))
        kernel = F.pad(kernel, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return kernel.transpose(-4, -3) if self.geometry.transposed else kernel


class BCOPLinear(PolarLinear):
    """Linear layer with an orthogonal matrix: BCOP with one tap."""

    traits = Traits(initialisations=PUBLISHED_INITIALISATIONS, keeps_directions=True)

    def initialise_as_published(self, tensors: dict[str, Tensor]) -> None:
        """A random orthogonal matrix, and torch's default for the bias."""
        draw_orthogonal(tensors["weight"])
        initialise_bias_uniformly(tensors.get("bias"), self.core_in)


METHOD = MethodInfo(
    key="bcop",
    guarantee="orthogonal",
    conv=BCOPConv2d,
    linear_layer=BCOPLinear,
    training_approximation="polar factors from eigenvectors of float32 Gram matrices",
)
