"""Convolutions of volumes, made of the methods' convolutions of images.

The slices of a kd x kh x kw kernel are written one below the other, and the method constrains that kernel as one of
images (`onelip.linalg.block_taps`). AOL's sum of |autocorrelations|, and with it the divisors of Bjorck, ONI and
SLL, does not ask where taps lie, only which offsets they have to each other: slices so far apart that no two offsets
fall together will do, whatever the volume. The norms of CPL and of spectral normalisation are those on a torus; with
slices as far apart as the torus of the rows is long, that of images is one for the volume.

A linear layer is then torch's convolution, with its stride, dilation and padding. The core of a residual layer has
stride 1 and keeps the volume; a stride unshuffles voxels, a padding picks outputs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.arguments import integers
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.fused import FusedLayer
from onelip.layers.geometry import Geometry
from onelip.layers.initialisation import initialise
from onelip.layers.operators import Framed, Grouped, Kernel, Operator
from onelip.layers.power_vectors import PowerVectors
from onelip.layers.residual import ResidualMap
from onelip.layers.volume_kernel import Sides, VolumeGeometry, VolumeKernel
from onelip.linalg.block_taps import Volume, block_taps, slices_below, slices_of, taps_of_blocks, volume_torus
from onelip.linalg.convolution import PaddingMode
from onelip.linalg.fourier import Size


class LipschitzConv3d(LipschitzConv2d):
    """`nn.Conv3d` but for the default padding="same"."""

    padding_modes = ("zeros",)
    axes = ("depth", "height", "width")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Volume,
        stride: int | Volume = 1,
        padding: str | int | Volume = "same",
        dilation: int | Volume = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        **options: Any,
    ) -> None:
        """As `nn.Conv3d`.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            kernel_size: taps, one number or (depth, rows, columns), even or odd.
            stride: voxels between outputs.
            padding: "same", "valid", or as many voxels on each side as torch would add.
            dilation: voxels between taps.
            groups: parts of the channels that do not see each other; divides both numbers of channels.
            bias: whether a bias is added.
            padding_mode: "zeros".
            options: init, lipschitz, device, dtype and the method's own, as those of its convolution.
        """
        self._taps: Volume = integers(self, "kernel_size", kernel_size, 1, 3)
        self._steps: Volume = integers(self, "stride", stride, 1, 3)
        self._spread: Volume = integers(self, "dilation", dilation, 1, 3)
        self._given_padding = padding if isinstance(padding, str) else integers(self, "padding", padding, 0, 3)
        if self._given_padding not in ("same", "valid") and isinstance(padding, str):
            raise InvalidInputError(
                f'{type(self).__name__}: padding={padding!r} is not supported, use "same", "valid" or integers'
            )
        if self.traits.square and any(s > 1 and d > 1 for s, d in zip(self._steps, self._spread, strict=True)):
            raise InvalidInputError(
                f"{type(self).__name__}: a stride and a dilation along the same axis are not supported; "
                "take a method that is linear, such as aol or spectral"
            )
        super().__init__(
            in_channels, out_channels, self._taps[1:], groups=groups, bias=bias, **options, padding_mode=padding_mode
        )
        self.kernel_size: Any = self._taps
        self.stride: Any = self._steps
        self.dilation: Any = self._spread
        self.padding: Any = self._given_padding

    def pixels_per_output(self, geometry: Geometry) -> int:
        """Voxels of a block."""
        return math.prod(self._steps)

    @property
    def _same(self) -> Sides:
        """Zeros of "same" in front and behind."""
        spans = [d * (k - 1) for d, k in zip(self._spread, self._core_taps, strict=True)]
        found = [(span // 2, span - span // 2) for span in spans]
        return found[0], found[1], found[2]

    @property
    def _sides(self) -> Sides:
        """Zeros in front and behind."""
        if self.padding == "same":
            return self._same
        found = [(side, side) for side in ((0, 0, 0) if self.padding == "valid" else self.padding)]
        return found[0], found[1], found[2]

    @property
    def _core_taps(self) -> Volume:
        """Sides of the kernel that is applied: a square core has blocks, and an odd number of them."""
        if not self.traits.square:
            return self._taps
        depth, height, width = (-(-k // s) // 2 * 2 + 1 for k, s in zip(self._taps, self._steps, strict=True))
        return depth, height, width

    @property
    def core_kernel(self) -> Size:
        """Rows and columns of the slices one right below the other."""
        return self._core_taps[0] * self._core_taps[1], self._core_taps[2]

    @property
    def coarse_torus(self) -> Size:
        """A torus of 8 x 8 x 8 frequencies, slices one below the other."""
        side = super().coarse_torus[0] // 2 if max(self._core_taps) > 1 else 1
        return side * max(side, self._read_height), side

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """(out / groups, in / groups, kd, kh, kw), or those of a square core with the taps of its blocks."""
        if self.traits.square:
            blocks = (-(-k // s) for k, s in zip(self._taps, self._steps, strict=True))
            weight = (self.core_out, self.core_in, *blocks)
        else:
            weight = (self.out_channels // self.groups, self.in_channels // self.groups, *self._taps)
        return {**super().tensor_shapes(), "weight": weight}

    def initialise_weight(self, weight: Tensor, name: str) -> None:
        """Draw the weight: that on blocks, by which a strided layer reads whole blocks of voxels at the start."""
        blocks = torch.empty_like(block_taps(weight, self._block_steps, (1, 1, 1)))
        initialise(blocks, name)
        weight.copy_(taps_of_blocks(blocks, self._taps, self._block_steps, (1, 1, 1)))

    def make_convolution_geometry(self) -> VolumeGeometry:
        """Around the core of a square method; a linear one is torch's convolution."""
        given = (0, 0, 0) if self._given_padding == "valid" else self._given_padding
        padding, kept = None if isinstance(given, str) else given, self.out_channels // self.groups
        sides = self._taps, self._steps, padding, self._spread
        return VolumeGeometry(self.traits.square, *sides, self.groups, self.core_in, kept)

    @property
    def _block_steps(self) -> Volume:
        """The stride of the convolution: that of a square core is 1, its voxels are unshuffled."""
        return (1, 1, 1) if self.traits.square else self._steps

    def _read(self, kernel: Tensor) -> Tensor:
        """The kernel of stride 1 that is constrained."""
        if self.traits.square:
            missing = [side - given for side, given in zip(self._core_taps, kernel.shape[-3:], strict=True)]
            kernel = F.pad(kernel, [side for lacks in reversed(missing) for side in (lacks, 0)])
        return block_taps(kernel, self._block_steps, self._spread)

    def _distance(self, torus: Volume | None, estimated: bool) -> int:
        """Rows between the slices."""
        if estimated:
            rows, columns = self.coarse_torus
            return rows // columns
        return 2 * self.gram_power * (self._read_height - 1) + 1 if torus is None else torus[1]

    @property
    def _read_height(self) -> int:
        """Rows of a slice of the kernel that is constrained."""
        return -(-((self._core_taps[1] - 1) * self._spread[1] + 1) // self._block_steps[1])

    def transform_tensors(self, tensors: Mapping[str, Tensor], request: Any) -> Operator:
        """The method's transformation of the slices one below the other."""
        read, size = self._read(tensors["weight"]), request.size
        steps, sides = self._block_steps, self._same if self.traits.square else self._sides
        spans = [d * (k - 1) + 1 for d, k in zip(self._spread, self._core_taps, strict=True)]
        estimated = isinstance(self, PowerVectors) and request.approximate
        torus = None if size is None or estimated else volume_torus(size, spans, steps, sides)
        distance = self._distance(torus, estimated)
        image = slices_below(read, distance)
        if size is not None:
            image = F.pad(image, (0, 1 - image.shape[-1] % 2, 0, 1 - image.shape[-2] % 2))  # odd sides
        if torus is None:
            seen = self.coarse_torus if estimated else None
        else:  # with the zeros that the method puts around it
            seen = torus[0] * torus[1] - image.shape[-2] + 1, torus[2] - image.shape[-1] + 1
        flat = super().transform_tensors({**tensors, "weight": image}, replace(request, size=seen))
        kernel = flat.weight if isinstance(flat, ResidualMap) else flat
        assert isinstance(kernel, Kernel)
        slices = slices_of(kernel.kernel, distance, read.shape[-3:])
        taps = taps_of_blocks(slices, self._core_taps, steps, self._spread)
        volume = VolumeKernel(taps, steps, sides, self._spread, state=kernel.state)
        return replace(flat, weight=volume) if isinstance(flat, ResidualMap) else volume

    def fuse(self, input_size: Any = None) -> nn.Module:
        """One `nn.Conv3d`, or one of ours: residual layers, and where as many zeros are not in front as behind.

        `input_size` is the depth, height and width of this layer's input, where the parameters depend on it.
        """
        operator, sides = self._detached(input_size), self._sides
        if self.traits.square:
            return FusedLayer(Framed(self.convolution_geometry, operator), self.bias)
        if any(front != behind for front, behind in sides):
            return FusedLayer(operator, self.bias)
        kernel = operator.tensors()["kernel"]
        kernel = kernel.flatten(0, 1) if isinstance(operator, Grouped) else kernel
        padding = sides[0][0], sides[1][0], sides[2][0]
        counts = self.in_channels, self.out_channels, self.kernel_size
        options: Any = {"dilation": self.dilation, "groups": self.groups, "bias": self.bias is not None}
        conv = nn.Conv3d(*counts, self.stride, padding, **options, device="meta")
        conv.weight = nn.Parameter(kernel, requires_grad=False)
        if self.bias is not None:
            conv.bias = nn.Parameter(self.bias.detach().clone(), requires_grad=False)
        return conv


@functools.cache
def of_volumes(conv: type[LipschitzConv2d]) -> type[LipschitzConv3d]:
    """The convolution of volumes of a method, by its convolution."""
    name = conv.__name__.removesuffix("Conv2d") + "Conv3d"
    text = f"Convolution of volumes by the method of `{conv.__name__}`, whose further arguments it takes."
    return type(name, (LipschitzConv3d, conv), {"__doc__": text, "__module__": "onelip.layers"})
