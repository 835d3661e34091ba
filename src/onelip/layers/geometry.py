"""How a convolution reads its image: stride, padding, dilation and transposition, as isometries around a core.

The core of a method is a convolution of stride 1 that keeps height and width. All else is done by maps that keep
distances or cannot increase them: moving pixels, appending zeros, dropping outputs.

* A stride s unshuffles pixels by s: the core maps s * s times as many channels, with ceil(k / s) taps a side
  (`onelip.linalg.block_taps`). A transposed convolution shuffles the outputs of its core instead, which has s * s times
  as many of them.
* A dilation d splits the image into classes of pixels that are d apart, which the core maps one by one. On a circle of
  n pixels, with g = gcd(d, n), the positions r + d j mod n for r < g and j < n / g are a bijection. Elsewhere zeros
  are appended up to a multiple of d. Behind a stride the classes are of blocks, and a block is s pixels that are d
  apart; torch's convolution skips pixels where s and d have a common divisor.
* A padding picks those outputs that torch returns, on an image that is rolled (circular) or has zeros in front of it.
  "same" is torch's too: a kernel that spans m pixels beyond its first reads m // 2 of them before the output's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.operators import Frame, Grouped, Kernel, Operator
from onelip.linalg.block_taps import taps_of_blocks
from onelip.linalg.convolution import strided_convolution
from onelip.linalg.fourier import Size


class AxisPlan(NamedTuple):
    """One axis: `front` zeros precede the image, and zeros fill it up to `total`; outputs are `kept` from `start` on.

    `shift` is the pixel of the core that the first output belongs to: a circular image is rolled back by it, or the
    outputs of a transposed convolution are.
    """

    front: int
    total: int
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
        return -(-self.kernel_size[0] // self.stride[0]), -(-self.kernel_size[1] // self.stride[1])

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
        plans, to_blocks = self._places(size), not self.transposed
        # Where pixels are gathered, one zero more at the end stands for all that lie beyond it.
        gathered = [spread > 1 and not self.circular for spread in self.dilation]
        behind = (plan.total - plan.front - length for plan, length in zip(plans, size, strict=True))
        x = _padded(x, [(p.front, zeros + more) for p, zeros, more in zip(plans, behind, gathered, strict=True)])
        for axis, (dim, plan) in enumerate(zip((-2, -1), plans, strict=True)):
            roll = plan.shift if self.circular and to_blocks else 0
            if self.dilation[axis] == 1:
                x = x.roll(-roll, dim) if roll else x
            else:
                order = self._order(axis, plan.total, self.stride[axis] if to_blocks else 1, x.device)
                x = x.index_select(dim, (order + roll) % plan.total if self.circular else order)
        return split(x, self.classes(size), self.stride if to_blocks else (1, 1))

    def write(self, y: Tensor, size: Size) -> Tensor:
        """The output image of an image of this size, from the outputs of the core."""
        if self.moves_nothing:
            return y
        y = joined(y, self.classes(size), self.stride if self.transposed else (1, 1))
        for axis, (dim, plan) in enumerate(zip((-2, -1), self._places(size), strict=True)):
            roll = plan.shift if self.circular and self.transposed else 0
            if self.dilation[axis] == 1:
                y = y.roll(-roll, dim) if roll else y
                y = y.narrow(dim, plan.start, plan.kept) if plan.start or plan.kept != y.shape[dim] else y
            else:
                y = self._in_place(y, axis, dim, plan, roll)
        return y

    def _in_place(self, y: Tensor, axis: int, dim: int, plan: AxisPlan, roll: int) -> Tensor:
        """The outputs that are kept, from the order of `_order` to their own, and zeros where no block has one."""
        step, places = self.stride[axis], y.shape[dim]
        pixels, phases = (plan.total * step, step) if self.transposed else (plan.total // step, 1)
        place_of = torch.full((pixels + 1,), places, device=y.device)
        place_of[self._order(axis, pixels, phases, y.device)] = torch.arange(places, device=y.device)
        outputs = (torch.arange(plan.kept, device=y.device) + plan.start + roll) % pixels
        ends = [(0, int(other == dim and phases > 1)) for other in (-2, -1)]
        return _padded(y, ends).index_select(dim, place_of[outputs])

    def _order(self, axis: int, pixels: int, phases: int, device: torch.device) -> Tensor:
        """Which of the pixels is at each place of (class, block of that class, phase): block b has s b + d r, r < s.

        Each is at one place at most, as s and d have no common divisor. Where a class has fewer blocks than others, or
        a block reaches beyond the pixels, is the number behind the last one.
        """
        spread, blocks = self.dilation[axis], pixels // phases
        classes = math.gcd(spread, blocks) if self.circular else spread
        members = -(-blocks // classes)
        block = torch.arange(classes, device=device)[:, None] + spread * torch.arange(members, device=device)
        block = (block % (classes * members)).unsqueeze(-1)
        pixel = phases * block + spread * torch.arange(phases, device=device)
        pixel = pixel % pixels if self.circular else pixel.clamp(max=pixels)
        return torch.where(block < blocks, pixel, pixels).flatten()

    def strided(self, x: Tensor, taps: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        """The whole convolution with a stride, by torch's own, for taps in torch's order; nothing is dilated."""
        rows, columns = self._places((x.shape[-2], x.shape[-1]))
        if self.circular:
            x = F.pad(x, (0, columns.total - x.shape[-1], 0, rows.total - x.shape[-2]))
        front = self._reach(0)[0] - rows.shift, self._reach(1)[0] - columns.shift
        counts = rows.kept, columns.kept
        return strided_convolution(x, taps, bias, self.stride, front, counts, circular=self.circular, groups=groups)

    def _blocks(self, size: Size) -> Size:
        """Height and width after the stride, rounded up."""
        (rows, columns), steps = self._places(size), (1, 1) if self.transposed else self.stride
        return rows.total // steps[0], columns.total // steps[1]

    def _places(self, size: Size) -> tuple[AxisPlan, AxisPlan]:
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

    def place(self, axis: int, length: int) -> AxisPlan:
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
            return AxisPlan(0, whole, 0, count, shift)
        front = max(0, -shift, self._beyond_block(axis))
        front += -(shift + front) % step
        start = (shift + front) // step
        total = max(-(-(front + length) // step), start + count) * step
        return AxisPlan(front, total, start, count, shift)

    def _transposed_place(self, axis: int, length: int) -> AxisPlan:
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
            return AxisPlan(0, length, 0, count, shift)
        front = max(0, -((shift - self._beyond_block(axis)) // step))
        start = shift + front * step
        return AxisPlan(front, max(front + length, -(-(start + count) // step)), start, count, shift)


@dataclass(frozen=True)
class ConvolutionGeometry(Frame):
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

    def apply(self, x: Tensor, operator: Operator, bias: Tensor | None) -> Tensor:
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

    def _strided_taps(self, operator: Operator, channels: int) -> Tensor | None:
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
        taps = taps_of_blocks(kernel.kernel[..., -high:, -wide:], self.taps, geometry.stride, (1, 1))
        return taps if taps.dim() == 4 else taps.flatten(0, 1)

    def core_input(self, x: Tensor) -> Tensor:
        """The input of the core: pixels as it reads them, with the channels that it lacks."""
        x = self.geometry.read(x.unsqueeze(-2) if self.signal else x)
        missing = self.core_in - x.shape[1] // self.groups
        if missing:
            x = F.pad(x.unflatten(1, (self.groups, -1)), (0, 0, 0, 0, 0, missing)).flatten(1, 2)
        return x

    def core_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Channels of all groups, height and width."""
        return self.groups * self.core_in, *self.core_image(self.image(input_shape))

    def core_image(self, size: Size) -> Size:
        """Height and width of the images that the core sees."""
        return self.geometry.core_image(size)

    def parts(self, input_shape: tuple[int, ...]) -> int:
        """The classes of pixels that a dilation keeps apart."""
        return math.prod(self.geometry.classes(self.image(input_shape)))

    def image(self, input_shape: tuple[int, ...]) -> Size:
        """Height and width of an input of this shape."""
        return (1, input_shape[-1]) if self.signal else (input_shape[-2], input_shape[-1])


def split(x: Tensor, classes: Size, phases: Size) -> Tensor:
    """Axes of (class, block, phase) with the classes beside the batch and the phases beside the channels."""
    if classes == phases == (1, 1):
        return x
    x = x.unflatten(-1, (classes[1], -1, phases[1])).unflatten(-4, (classes[0], -1, phases[0]))
    return x.permute(0, 2, 5, 1, 4, 7, 3, 6).flatten(3, 5).flatten(0, 2)


def joined(y: Tensor, classes: Size, phases: Size) -> Tensor:
    """Inverse of `split`."""
    if classes == phases == (1, 1):
        return y
    y = y.unflatten(1, (-1, *phases)).unflatten(0, (-1, *classes))
    return y.permute(0, 3, 1, 6, 4, 2, 7, 5).flatten(5, 7).flatten(2, 4)


def _padded(x: Tensor, ends: Sequence[tuple[int, int]]) -> Tensor:
    """With so many zeros before and behind the rows, and the columns."""
    return F.pad(x, (*ends[1], *ends[0])) if any(map(any, ends)) else x
