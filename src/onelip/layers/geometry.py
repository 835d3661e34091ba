"""How a convolution reads its image: stride, padding, dilation and transposition, as isometries around a core.

The core of a method is a convolution of stride 1 that keeps height and width. All else is done by maps that keep
distances or cannot increase them: moving pixels, appending zeros, dropping outputs.

* A stride s unshuffles pixels by s: the core maps s * s times as many channels, with ceil(k / s) taps a side
  (`onelip.layers.strides`). A transposed convolution shuffles the outputs of its core instead, which has s * s times as
  many of them.
* A dilation d splits the image into classes of pixels that are d apart, which the core maps one by one. On a circle of
  n pixels, with g = gcd(d, n), the positions r + d j mod n for r < g and j < n / g are a bijection. Elsewhere zeros
  are appended up to a multiple of d. Behind a stride the classes are of blocks, and a block is s pixels that are d
  apart; torch's convolution skips pixels where s and d have a common divisor.
* A padding picks those outputs that torch returns, on an image that is rolled (circular) or has zeros in front of it.
  "same" is torch's too: a kernel that spans m pixels beyond its first reads m // 2 of them before the output's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.strides import blocks_of, strided_convolution, taps_of_blocks
from onelip.layers.transformed import Grouped, Kernel, Transformed
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound, repeated
from onelip.linalg.measured_rounding import behind


class Place(NamedTuple):
    """One axis: the image is rolled back by `roll`, `front` zeros precede it, and zeros fill it up to `total`.

    Of the outputs, rolled back by `roll_out`, so many are `kept` from `start` on. `shift` is the pixel of the core that
    the first output belongs to.
    """

    roll: int
    front: int
    total: int
    roll_out: int
    start: int
    kept: int
    shift: int


@dataclass(frozen=True)
class Geometry:
    """The arguments of a convolution that are not about channels; `padding` is None for "same"."""

    kernel_size: Size
    stride: Size
    padding: Size | None
    dilation: Size
    circular: bool
    transposed: bool = False
    output_padding: Size = (0, 0)

    @property
    def core_sides(self) -> Size:
        """Taps of the core along each axis: blocks of as many pixels as the stride has."""
        if self.stride == (1, 1):
            return self.kernel_size
        return blocks_of(self.kernel_size[0], self.stride[0]), blocks_of(self.kernel_size[1], self.stride[1])

    @property
    def outputs_beyond_same(self) -> int:
        """How many more outputs than "same" there are at stride 1, or of a transposed convolution, at most."""
        if self.padding is None:
            return 0
        return max(self._more_outputs(axis) for axis in (0, 1))

    def simplified(self) -> Geometry:
        """With padding None where its outputs are those of "same"."""
        if self.padding is None:
            return self
        centred = all(self._reach(axis)[1] // 2 == self.padding[axis] for axis in (0, 1))
        same = centred and all(self._more_outputs(axis) == 0 for axis in (0, 1))
        return replace(self, padding=None, output_padding=(0, 0)) if same else self

    def _more_outputs(self, axis: int) -> int:
        assert self.padding is not None
        missing = self._reach(axis)[1] - 2 * self.padding[axis]
        return missing + self.output_padding[axis] + 1 - self.stride[axis] if self.transposed else -missing

    @property
    def is_aligned(self) -> bool:
        """Whether the blocks of pixels that outputs of "same" belong to begin where the image does."""
        return all(self._reach(axis)[0] == self._reach(axis)[1] // 2 for axis in (0, 1))

    @property
    def moves_nothing(self) -> bool:
        """Whether images and outputs are those of the core as they are, if they have pixels."""
        return self.padding is None and self.stride == self.dilation == (1, 1)

    def core_image(self, size: Size) -> Size:
        """Height and width of the images that the core sees."""
        if self.moves_nothing and all(size):
            return size
        blocks, classes = self._blocks(size), self.classes(size)
        return -(-blocks[0] // classes[0]), -(-blocks[1] // classes[1])

    def classes(self, size: Size) -> Size:
        """Into how many images the dilation splits one, along each axis."""
        if not self.circular:
            return self.dilation
        blocks = self._blocks(size)
        return math.gcd(self.dilation[0], blocks[0]), math.gcd(self.dilation[1], blocks[1])

    def read(self, x: Tensor) -> Tensor:
        """The images that the core maps, (batch * classes, channels, h, w), of (batch, channels, height, width)."""
        size = x.shape[-2], x.shape[-1]
        if self.moves_nothing and all(size):
            return x
        rows, columns = self._places(size)
        below, right = rows.total - rows.front - size[0], columns.total - columns.front - size[1]
        x = _padded(x, (columns.front, right, rows.front, below))
        if rows.roll or columns.roll:
            x = x.roll((-rows.roll, -columns.roll), (-2, -1))
        if not self.transposed and self.stride != (1, 1):
            x = unshuffled(self._spread(x) if self._spreads_blocks else x, self.stride)
        return x if self.dilation == (1, 1) else self._split(x, size)

    def write(self, y: Tensor, size: Size) -> Tensor:
        """The output image of an image of this size, from the outputs of the core."""
        if self.moves_nothing:
            return y
        if self.dilation != (1, 1):
            y = self._joined(y, size)
        if self.transposed and self.stride != (1, 1):
            y = shuffled(y, self.stride)
            y = self._gathered(y) if self._spreads_blocks else y
        rows, columns = self._places(size)
        if rows.roll_out or columns.roll_out:
            y = y.roll((-rows.roll_out, -columns.roll_out), (-2, -1))
        for dim, place in ((-2, rows), (-1, columns)):
            if place.start or place.kept != y.shape[dim]:
                y = y.narrow(dim, place.start, place.kept)
        return y

    def strided(self, x: Tensor, taps: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        """The whole convolution with a stride, by torch's own, for taps in torch's order; nothing is dilated."""
        rows, columns = self._places((x.shape[-2], x.shape[-1]))
        if self.circular:
            x = _padded(x, (0, columns.total - x.shape[-1], 0, rows.total - x.shape[-2]))
        front = self._reach(0)[0] - rows.shift, self._reach(1)[0] - columns.shift
        counts = rows.kept, columns.kept
        return strided_convolution(x, taps, bias, self.stride, front, counts, circular=self.circular, groups=groups)

    def _blocks(self, size: Size) -> Size:
        """Height and width after the stride, rounded up."""
        rows, columns = self._places(size)
        return (
            (rows.total, columns.total)
            if self.transposed
            else (
                rows.total // self.stride[0],
                columns.total // self.stride[1],
            )
        )

    def _places(self, size: Size) -> tuple[Place, Place]:
        place = self._transposed_place if self.transposed else self.place
        return place(0, size[0]), place(1, size[1])

    def _reach(self, axis: int) -> tuple[int, int]:
        """How far the core reads before a pixel, and how many pixels a kernel spans beyond its first.

        Of the taps t = s a + r, the pixels d t = s d a + d r are read.
        """
        block = self.stride[axis] * self.dilation[axis]
        middle = (self.kernel_size[axis] - 1) // self.stride[axis] // 2
        return middle * block, (self.kernel_size[axis] - 1) * self.dilation[axis]

    def _beyond_block(self, axis: int) -> int:
        """How far the last pixel of a dilated block lies behind the first one of the block after it, at most."""
        step, spread = self.stride[axis], self.dilation[axis]
        return max(0, spread * (step - 1) - step + 1) if spread > 1 else 0

    @property
    def _spreads_blocks(self) -> bool:
        return any(d > 1 and s > 1 for d, s in zip(self.dilation, self.stride, strict=True))

    def _block_places(self, axis: int, length: int, device: torch.device) -> Tensor:
        """Which pixel stands at each place of the blocks: block b has the pixels s b + d r, r < s.

        Each pixel is there once, as s and d have no common divisor.
        """
        first = torch.arange(0, length, self.stride[axis], device=device)[:, None]
        places = (first + self.dilation[axis] * torch.arange(self.stride[axis], device=device)).flatten()
        return places % length if self.circular else places

    def place(self, axis: int, length: int) -> Place:
        """Output i of torch is that of the core at the pixel s i + shift."""
        step = self.stride[axis]
        whole = -(-length // step) * step
        same, span = self._reach(axis)
        if self.padding is None:
            shift, count = same - span // 2, whole // step
        else:
            shift, count = same - self.padding[axis], (length + 2 * self.padding[axis] - span - 1) // step + 1
        if count < 1:
            raise InvalidInputError(f"an image side of {length} is too small for this convolution")
        if self.circular:
            return Place(shift, 0, whole, 0, 0, count, shift)
        front = max(0, -shift, self._beyond_block(axis))
        front += -(shift + front) % step
        start = (shift + front) // step
        total = max(-(-(front + length) // step), start + count) * step
        return Place(0, front, total, 0, start, count, shift)

    def _transposed_place(self, axis: int, length: int) -> Place:
        """Output j of torch is that of the core at j + shift."""
        step = self.stride[axis]
        same, span = self._reach(axis)
        if self.padding is None:
            shift, count = span // 2 - same, length * step
        else:
            shift = self.padding[axis] - same
            count = (length - 1) * step - 2 * self.padding[axis] + span + self.output_padding[axis] + 1
        if count < 1:
            raise InvalidInputError(f"an image side of {length} is too small for this convolution")
        if self.circular:
            return Place(0, 0, length, shift, 0, count, shift)
        front = max(0, -((shift - self._beyond_block(axis)) // step))
        start = shift + front * step
        return Place(0, front, max(front + length, -(-(start + count) // step)), 0, start, count, shift)

    def _spread(self, x: Tensor) -> Tensor:
        """The pixels of a block side by side; behind the image are zeros."""
        for axis, dim in ((0, -2), (1, -1)):
            places = self._block_places(axis, x.shape[dim], x.device)
            beyond = 0 if self.circular else self._beyond_block(axis)
            x = _padded(x, (0, beyond, 0, 0) if dim == -1 else (0, 0, 0, beyond)).index_select(dim, places)
        return x

    def _gathered(self, y: Tensor) -> Tensor:
        """Adjoint of `_spread`: every pixel at its place, zeros where none belongs."""
        for axis, dim in ((0, -2), (1, -1)):
            length = y.shape[dim]
            places = self._block_places(axis, length, y.device)
            index = places.new_full((length + (0 if self.circular else self._beyond_block(axis)),), length)
            index[places] = torch.arange(length, device=y.device)
            y = _padded(y, (0, 1, 0, 0) if dim == -1 else (0, 0, 0, 1)).index_select(dim, index)
        return y

    def _orders(self, size: Size, device: torch.device) -> list[tuple[int, Tensor]]:
        """Along each axis the number of classes, and the pixels of one class after the other."""
        found = []
        for blocks, count, step in zip(self._blocks(size), self.classes(size), self.dilation, strict=True):
            members = -(-blocks // count)
            places = torch.arange(count, device=device)[:, None] + step * torch.arange(members, device=device)
            found.append((count, (places % (count * members)).flatten()))
        return found

    def _split(self, x: Tensor, size: Size) -> Tensor:
        (high, rows), (wide, columns) = self._orders(size, x.device)
        x = _padded(x, (0, len(columns) - x.shape[-1], 0, len(rows) - x.shape[-2]))
        x = x.index_select(-2, rows).index_select(-1, columns)
        x = x.unflatten(-1, (wide, -1)).unflatten(-3, (high, -1))
        return x.permute(0, 2, 4, 1, 3, 5).flatten(0, 2)

    def _joined(self, y: Tensor, size: Size) -> Tensor:
        (high, rows), (wide, columns) = self._orders(size, y.device)
        y = y.unflatten(0, (-1, high, wide)).permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
        y = y.index_select(-2, rows.argsort()).index_select(-1, columns.argsort())
        blocks = self._blocks(size)
        return y[..., : blocks[0], : blocks[1]]


@dataclass(frozen=True)
class Surroundings:
    """All that stands around the core of a convolution: its geometry, zero channels before it, a cut behind it.

    Channels are counted per group. `taps` are those of the core's kernel in pixels, beyond which it is zero. `signal`:
    inputs are (batch, channels, length), images of one row.
    """

    geometry: Geometry
    groups: int
    core_in: int
    kept: int
    taps: Size
    signal: bool = False

    def apply(self, x: Tensor, operator: Transformed, bias: Tensor | None) -> Tensor:
        """The whole convolution, with an operator as its core."""
        size = self.image(tuple(x.shape))
        taps = self._strided_taps(operator, x.shape[-2] if self.signal else x.shape[-3])
        if taps is not None:
            y = self.geometry.strided(x.unsqueeze(-2) if self.signal else x, taps, bias, self.groups)
            return y.squeeze(-2) if self.signal else y
        y = operator.apply(self.core_input(x), bias)
        if y.shape[1] > self.groups * self.kept:
            y = y.unflatten(1, (self.groups, -1))[:, :, : self.kept].flatten(1, 2)
        y = self.geometry.write(y, size)
        return y.squeeze(-2) if self.signal else y

    def _strided_taps(self, operator: Transformed, channels: int) -> Tensor | None:
        """The kernel (out, in / groups, kh, kw) of torch's own convolution, where that is what there is to do."""
        geometry = self.geometry
        kernel = operator.operator if isinstance(operator, Grouped) else operator
        if (
            geometry.stride == (1, 1)
            or geometry.transposed
            or geometry.dilation != (1, 1)
            or type(kernel) is not Kernel
        ):
            return None
        square = self.groups * self.core_in != channels * math.prod(geometry.stride)
        if square or kernel.kernel.shape[-4] != self.kept:
            return None
        high, wide = geometry.core_sides
        taps = taps_of_blocks(kernel.kernel[..., -high:, -wide:], geometry.stride, self.taps)
        return taps if taps.dim() == 4 else taps.flatten(0, 1)

    def core_input(self, x: Tensor) -> Tensor:
        """What the core is applied to: pixels as it reads them, with the channels that it lacks."""
        x = self.geometry.read(x.unsqueeze(-2) if self.signal else x)
        missing = self.core_in - x.shape[1] // self.groups
        if missing:
            x = F.pad(x.unflatten(1, (self.groups, -1)), (0, 0, 0, 0, 0, missing)).flatten(1, 2)
        return x

    def bound(self, input_shape: tuple[int, ...], operator: Transformed, bias: Tensor | None) -> LayerBound:
        """That of the core: moved pixels, zeros that are appended and outputs that are dropped expand nothing."""
        size = self.image(input_shape)
        inner = operator.bound((self.groups * self.core_in, *self.geometry.core_image(size)), bias)
        classes = math.prod(self.geometry.classes(size))
        if classes > 1:
            return repeated(inner, classes)
        return behind(self.core_input, inner)

    def image(self, input_shape: tuple[int, ...]) -> Size:
        """Height and width of an input of this shape."""
        return (1, input_shape[-1]) if self.signal else (input_shape[-2], input_shape[-1])


def unshuffled(x: Tensor, stride: Size) -> Tensor:
    """Pixel unshuffle by (rows, columns); as torch's, the pixels of a channel stay together."""
    x = x.unflatten(-1, (-1, stride[1])).unflatten(-3, (-1, stride[0]))
    return x.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


def shuffled(x: Tensor, stride: Size) -> Tensor:
    """Inverse of `unshuffled`."""
    x = x.unflatten(1, (-1, *stride))
    return x.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)


def _padded(x: Tensor, sides: tuple[int, int, int, int]) -> Tensor:
    return F.pad(x, sides) if any(sides) else x
