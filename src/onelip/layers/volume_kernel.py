"""What the parameters of a convolution of volumes become, and how a square core reads its volume."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from onelip.layers.geometry import Geometry, Place
from onelip.layers.transformed import Transformed
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound, linear_bound
from onelip.linalg.linear_bounds import bias_norm
from onelip.linalg.measured_rounding import Product, behind, measured
from onelip.linalg.proven_convolution import Convolution
from onelip.linalg.proven_volumes import Volume, as_images, volume_norm_bounds

Sides = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Zeros in front of and behind each axis."""


@dataclass(frozen=True)
class VolumeKernel(Transformed):
    """A convolution (out, in, kd, kh, kw) with zeros in front of and behind each axis."""

    kernel: Tensor
    stride: Volume
    padding: Sides
    dilation: Volume

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """One convolution."""
        sides = [side for pair in reversed(self.padding) for side in pair]
        x = F.pad(x, sides) if any(sides) else x
        return F.conv3d(x, self.kernel, bias, self.stride, dilation=self.dilation)

    def adjoint(self, y: Tensor) -> Tensor:
        """The transpose without a bias, of stride 1 and as many zeros in front as behind: that of residual layers."""
        fronts = tuple(front for front, _ in self.padding)
        return F.conv_transpose3d(y, self.kernel, padding=fronts, dilation=self.dilation)

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """The norm on the torus of the padded volume, as that of a convolution of images."""
        size = input_shape[-3:]
        norm, magnitude = volume_norm_bounds(self.kernel, size, self.stride, self.dilation, self.padding, 1)
        spans = (d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel.shape[-3:], strict=True))
        lengths = zip(size, self.padding, spans, self.stride, strict=True)
        voxels = math.prod((length + sum(sides) - span) // step + 1 for length, sides, span, step in lengths)
        outputs = self.kernel.shape[0] * voxels
        bound = linear_bound(norm, magnitude, self.kernel[0].numel(), outputs, bias_norm(bias, voxels))
        return measured(bound, self.product(bias))

    def product(self, bias: Tensor | None) -> Product:
        """What `apply` computes, as a function of the numbers."""
        return Product(lambda x, kernel, shift: replace(self, kernel=kernel).apply(x, shift), self.kernel, bias)

    def adjoint_product(self) -> Product:
        """What `adjoint` computes, as a function of the numbers."""
        return Product(lambda y, kernel, _: replace(self, kernel=kernel).adjoint(y), self.kernel)

    def as_images(self, size: tuple[int, ...]) -> tuple[Convolution, Size]:
        """What is proven, for what it costs."""
        return as_images(self.kernel, size, self.stride, self.dilation, self.padding, 1)

    def scaled(self, factor: float) -> VolumeKernel:
        """The kernel times the factor."""
        return replace(self, kernel=self.kernel * factor)


@dataclass(frozen=True)
class VolumeSurroundings:
    """What stands around a square core: voxels as it reads them, zero channels before it, a cut behind it.

    As `onelip.layers.geometry.Surroundings` for images: a stride unshuffles voxels, a padding picks outputs. A linear
    layer, which is torch's convolution, asks for the volume only. Channels are counted per group. `padding` is None
    for "same".
    """

    kernel_size: Volume
    stride: Volume
    padding: Volume | None
    dilation: Volume
    groups: int
    core_in: int
    kept: int

    def apply(self, x: Tensor, operator: Transformed, bias: Tensor | None) -> Tensor:
        """The whole layer, with an operator as its core."""
        places = self._places(x.shape[-3:])
        y = operator.apply(self.core_input(x), bias)
        y = y.unflatten(1, (self.groups, -1))[:, :, : self.kept].flatten(1, 2)
        for dim, place in zip((-3, -2, -1), places, strict=True):
            y = y.narrow(dim, place.start, place.kept)
        return y

    def core_input(self, x: Tensor) -> Tensor:
        """What the core is applied to."""
        places = self._places(x.shape[-3:])
        lengths = zip(places, x.shape[-3:], strict=True)
        sides = [(place.front, place.total - place.front - length) for place, length in lengths]
        x = F.pad(x, [side for pair in reversed(sides) for side in pair])
        depth, height, width = self.stride
        x = x.unflatten(-1, (-1, width)).unflatten(-3, (-1, height)).unflatten(-5, (-1, depth))
        x = x.permute(0, 1, 3, 5, 7, 2, 4, 6).flatten(1, 4)
        missing = self.core_in - x.shape[1] // self.groups
        return F.pad(x.unflatten(1, (self.groups, -1)), (0, 0) * 3 + (0, missing)).flatten(1, 2) if missing else x

    def core_volume(self, size: tuple[int, ...]) -> Volume:
        """Depth, height and width of the volume that the core sees."""
        depth, height, width = (p.total // s for p, s in zip(self._places(size), self.stride, strict=True))
        return depth, height, width

    def image(self, input_shape: tuple[int, ...]) -> Any:
        """Depth, height and width of an input of this shape; what takes two numbers from images takes three here."""
        return input_shape[-3], input_shape[-2], input_shape[-1]

    def bound(self, input_shape: tuple[int, ...], operator: Transformed, bias: Tensor | None) -> LayerBound:
        """That of the core: moved voxels, zeros that are appended and outputs that are dropped expand nothing."""
        inner = operator.bound((self.groups * self.core_in, *self.core_volume(input_shape[-3:])), bias)
        return behind(self.core_input, inner)

    def _places(self, size: tuple[int, ...]) -> list[Place]:
        """Each axis as the columns of an image of one row."""
        found = []
        for axis, length in enumerate(size):
            padding = None if self.padding is None else (0, self.padding[axis])
            taps, step, spread = ((1, numbers[axis]) for numbers in (self.kernel_size, self.stride, self.dilation))
            found.append(Geometry(taps, step, padding, spread, circular=False).place(1, length))
        return found
