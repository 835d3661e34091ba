"""Convolutions of volumes, for methods whose constant follows from the products of a kernel's taps with each other.

AOL's sum of |autocorrelations|, and with it the divisors of Bjorck and ONI, does not ask where taps lie, only which
offsets they have to each other. So the slices of a kd x kh x kw kernel are written one below the other, so far apart
that no two offsets fall together, and the method constrains that kernel as one of images. A stride drops outputs of the
constrained convolution, a dilation moves its taps apart, zero padding cuts it off: none raises its norm.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.arguments import check_numbers
from onelip.layers.bounded import proven_bound
from onelip.layers.convolution import PaddingMode
from onelip.layers.fused import FusedLayer
from onelip.layers.initialisation import initialise
from onelip.layers.shapes import LipschitzConv2d
from onelip.layers.transformed import Grouped, Kernel, Transformed
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound, linear_bound
from onelip.linalg.linear_bounds import bias_norm
from onelip.linalg.proven_volumes import volume_norm_bounds

Volume = tuple[int, int, int]
Padding = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class VolumeKernel(Transformed):
    """A convolution (out, in, kd, kh, kw) with zeros in front of and behind each axis."""

    kernel: Tensor
    stride: Volume
    padding: Padding
    dilation: Volume

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """One convolution."""
        sides = [side for pair in reversed(self.padding) for side in pair]
        x = F.pad(x, sides) if any(sides) else x
        return F.conv3d(x, self.kernel, bias, self.stride, dilation=self.dilation)

    def bound(self, input_shape: tuple[int, ...], bias: Tensor | None) -> LayerBound:
        """The norm at each frequency of the depth, that of a convolution of images."""
        size = input_shape[-3:]
        norm, magnitude = volume_norm_bounds(self.kernel, size, self.stride, self.dilation, self.padding, 1)
        spans = (d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel.shape[-3:], strict=True))
        lengths = zip(size, self.padding, spans, self.stride, strict=True)
        voxels = math.prod((length + sum(sides) - span) // step + 1 for length, sides, span, step in lengths)
        outputs = self.kernel.shape[0] * voxels
        return linear_bound(norm, magnitude, self.kernel[0].numel(), outputs, bias_norm(bias, voxels))

    def scaled(self, factor: float) -> VolumeKernel:
        """The kernel times the factor."""
        return replace(self, kernel=self.kernel * factor)


class LipschitzConv3d(LipschitzConv2d):
    """Base of the convolutions of volumes, with the signature of `nn.Conv3d`, the default "same", and zero padding."""

    padding_modes = ("zeros",)

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
        self._taps = self._three("kernel_size", kernel_size)
        super().__init__(
            in_channels, out_channels, self._taps[1:], groups=groups, bias=bias, **options, padding_mode=padding_mode
        )
        self.kernel_size: Any = self._taps
        self.stride: Any = self._three("stride", stride)
        self.dilation: Any = self._three("dilation", dilation)
        self.padding: Any = padding if isinstance(padding, str) else self._three("padding", padding, 0)
        self._sides()

    def _three(self, name: str, value: Any, smallest: int = 1) -> Volume:
        numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,) * 3
        if len(numbers) != 3 or any(type(number) is not int or number < smallest for number in numbers):
            raise InvalidInputError(
                f"{type(self).__name__}: {name}={value!r} must be one or three integers, {smallest} or more"
            )
        return numbers[0], numbers[1], numbers[2]

    def _sides(self) -> Padding:
        """Zeros in front and behind."""
        if self.padding not in ("same", "valid") and isinstance(self.padding, str):
            raise InvalidInputError(
                f'{type(self).__name__}: padding={self.padding!r} is not supported, use "same", "valid" or integers'
            )
        spans = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        if self.padding == "same":
            found = [(span // 2, span - span // 2) for span in spans]
        else:
            found = [(side, side) for side in ((0, 0, 0) if self.padding == "valid" else self.padding)]
        return found[0], found[1], found[2]

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(out / groups, in / groups, kd, kh, kw)."""
        return self.core_out, self.core_in, *self._taps

    def start_weight(self, name: str) -> None:
        """As that of images, the slices of the kernel one below the other."""
        initialise(self.weight.detach().flatten(2, 3), name)

    def transform_tensors(self, tensors: Mapping[str, Tensor], size: Size | None) -> Transformed:
        """The method's transformation of the slices one below the other."""
        depth, height, _ = self._taps
        distance = 2 * self.gram_power * (height - 1) + 1
        apart = F.pad(tensors["weight"], (0, 0, 0, distance - height)).flatten(-3, -2)
        flat = super().transform_tensors({**tensors, "weight": apart}, size)
        assert isinstance(flat, Kernel)
        kernel = flat.kernel.unflatten(-2, (depth, distance))[..., :height, :]
        return VolumeKernel(kernel, self.stride, self._sides(), self.dilation)

    def apply_to(self, x: Tensor, transformed: Transformed) -> Tensor:
        """The input transformation on (batch, in_channels, depth, height, width)."""
        return transformed.apply(x, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, d, h, w), or one volume (in_channels, d, h, w), as `nn.Conv3d` does."""
        check_numbers(self, x)
        if x.dim() not in (4, 5) or x.shape[-4] != self.in_channels:
            raise InvalidInputError(
                f"{type(self).__name__} expects (batch, {self.in_channels}, depth, height, width), got {tuple(x.shape)}"
            )
        if x.dim() == 4:
            return self.forward(x[None])[0]
        return self.apply_to(x, self.transformed())

    def lipschitz_bound(self, input_size: Any = None) -> float:
        """Proven upper bound of the Lipschitz constant in evaluation mode on volumes of this size."""
        if input_size is None or len(input_size) != 3:
            raise InvalidInputError(
                f"the bound of {type(self).__name__} depends on the volume: pass input_size=(depth, height, width)"
            )
        return proven_bound(self, (self.in_channels, *input_size)).lipschitz

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the kernel."""
        return self.deployed().bound(input_shape, self.bias)

    def fuse(self, input_size: Any = None) -> nn.Module:
        """One `nn.Conv3d`, or one of ours where the zeros in front are not as many as those behind."""
        transformed, sides = self._detached(None), self._sides()
        if any(front != behind for front, behind in sides):
            return FusedLayer(transformed, self.bias)
        kernel = transformed.tensors()["kernel"]
        kernel = kernel.flatten(0, 1) if isinstance(transformed, Grouped) else kernel
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
