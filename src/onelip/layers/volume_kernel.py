"""The operator of a convolution of volumes, and how a square core reads its volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from onelip.layers.geometry import AxisPlan, Geometry
from onelip.layers.operators import Frame, Operator
from onelip.linalg.block_taps import Volume

if TYPE_CHECKING:
    from onelip.proofs.layer_bound import LayerBound

Sides = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Zeros in front of and behind each axis."""


@dataclass(frozen=True)
class VolumeKernel(Operator):
    """A convolution (out, in, kd, kh, kw) with zeros in front of and behind each axis."""

    linear_in = "kernel"

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


@dataclass(frozen=True)
class VolumeGeometry(Frame):
    """The frame around a square core: voxels as it reads them, zero channels before it, a cut behind it.

    As `onelip.layers.geometry.ConvolutionGeometry` for images: a stride unshuffles voxels, a padding picks outputs. A
    linear layer is torch's convolution, with nothing around it. Channels are counted per group. `padding` is None for
    "same".
    """

    square: bool
    kernel_size: Volume
    stride: Volume
    padding: Volume | None
    dilation: Volume
    groups: int
    core_in: int
    kept: int

    def apply(self, x: Tensor, operator: Operator, bias: Tensor | None) -> Tensor:
        """The whole layer, with an operator as its core."""
        if not self.square:
            return operator.apply(x, bias)
        places = self._places(x.shape[-3:])
        y = operator.apply(self.core_input(x), bias)
        y = y.unflatten(1, (self.groups, -1))[:, :, : self.kept].flatten(1, 2)
        for dim, place in zip((-3, -2, -1), places, strict=True):
            y = y.narrow(dim, place.start, place.kept)
        return y

    def bound(self, input_shape: tuple[int, ...], operator: Operator, bias: Tensor | None) -> LayerBound:
        """The bound of the frame and its core, or of the convolution alone."""
        return super().bound(input_shape, operator, bias) if self.square else operator.bound(input_shape, bias)

    def core_input(self, x: Tensor) -> Tensor:
        """The voxels, and the zero channels, that the core is applied to."""
        places = self._places(x.shape[-3:])
        lengths = zip(places, x.shape[-3:], strict=True)
        sides = [(place.front, place.total - place.front - length) for place, length in lengths]
        x = F.pad(x, [side for pair in reversed(sides) for side in pair])
        depth, height, width = self.stride
        x = x.unflatten(-1, (-1, width)).unflatten(-3, (-1, height)).unflatten(-5, (-1, depth))
        x = x.permute(0, 1, 3, 5, 7, 2, 4, 6).flatten(1, 4)
        missing = self.core_in - x.shape[1] // self.groups
        return F.pad(x.unflatten(1, (self.groups, -1)), (0, 0) * 3 + (0, missing)).flatten(1, 2) if missing else x

    def core_image(self, size: Volume) -> Volume:
        """Depth, height and width of the volume that the core, or a linear layer, sees."""
        if not self.square:
            return size
        depth, height, width = (p.total // s for p, s in zip(self._places(size), self.stride, strict=True))
        return depth, height, width

    def core_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Channels of all groups, depth, height and width."""
        return self.groups * self.core_in, *self.core_image(self.image(input_shape))

    def image(self, input_shape: tuple[int, ...]) -> Volume:
        """Depth, height and width of an input of this shape."""
        return input_shape[-3], input_shape[-2], input_shape[-1]

    def _places(self, size: tuple[int, ...]) -> list[AxisPlan]:
        """Each axis as the columns of an image of one row."""
        found = []
        for axis, length in enumerate(size):
            padding = None if self.padding is None else (0, self.padding[axis])
            taps, step, spread = ((1, numbers[axis]) for numbers in (self.kernel_size, self.stride, self.dilation))
            found.append(Geometry(taps, step, padding, spread, circular=False).place(1, length))
        return found
