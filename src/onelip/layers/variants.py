"""Transposed and one-dimensional convolutions of every method, made of its convolution.

A transposed convolution of stride s is the core of a convolution with s * s * out outputs, whose pixels are then
shuffled: the adjoint of "unshuffle, then convolve". So it exists for every method, linear or not, and is orthogonal
where the method is. A signal is an image of one row, and its kernel has one row too.
"""

from __future__ import annotations

import functools
from typing import Any

from onelip.errors import InvalidInputError
from onelip.layers.arguments import read_geometry
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.geometry import Geometry
from onelip.linalg.convolution import PaddingMode
from onelip.linalg.fourier import Size


class LipschitzConvTranspose2d(LipschitzConv2d):
    """`nn.ConvTranspose2d` but for the defaults padding="same" and padding_mode="circular".

    The default padding "same" gives s times the height and width. Integers give torch's sizes. Parameters are those of
    the core, with one bias per output of it.
    """

    _output_padding: int | Size = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Size,
        stride: int | Size = 1,
        padding: str | int | Size = "same",
        output_padding: int | Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Size = 1,
        padding_mode: PaddingMode = "circular",
        **options: Any,
    ) -> None:
        """As `nn.ConvTranspose2d`.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            kernel_size: taps, one number or (rows, columns), even or odd.
            stride: how many times higher and wider the output is.
            padding: "same", or as many pixels of each side as torch would cut off.
            output_padding: rows and columns more below and to the right, fewer than the stride.
            groups: parts of the channels that do not see each other; divides both numbers of channels.
            bias: whether a bias is added.
            dilation: pixels between taps.
            padding_mode: "circular" or "zeros".
            options: init, lipschitz, device, dtype and the method's own, as those of its convolution;
                lipschitz: the constant that is guaranteed.
        """
        self._output_padding = output_padding  # for `read_geometry`, which the constructor of the convolution calls
        geometry = kernel_size, stride, padding, dilation, groups
        super().__init__(in_channels, out_channels, *geometry, bias, padding_mode, **options)
        self.output_padding = self.geometry.output_padding

    def read_geometry(self, kernel_size: Any, stride: Any, padding: Any, dilation: Any, circular: bool) -> Geometry:
        """The geometry of these arguments."""
        return read_geometry(self, kernel_size, stride, padding, dilation, circular, self._output_padding)


class LipschitzConv1d(LipschitzConv2d):
    """`nn.Conv1d` but for two defaults, padding="same" and padding_mode="circular"."""

    axes = ("length",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: str | int = "same",
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "circular",
        **options: Any,
    ) -> None:
        """As `nn.Conv1d`; its arguments, and those of the method's convolution of images by name.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            kernel_size: taps, even or odd.
            stride: samples between outputs.
            padding: "same", "valid", or as many samples on each side as torch would add.
            dilation: samples between taps.
            groups: parts of the channels that do not see each other; divides both numbers of channels.
            bias: whether a bias is added.
            padding_mode: "circular" or "zeros".
            options: init, lipschitz, device, dtype and the method's own, as those of its convolution.
        """
        sides = padding if isinstance(padding, str) else (0, _one(padding))
        geometry = (1, _one(kernel_size)), (1, _one(stride)), sides, (1, _one(dilation)), groups
        super().__init__(in_channels, out_channels, *geometry, bias, padding_mode, **options)


def _one(value: Any) -> Any:
    """The number in a tuple of one, as torch allows; the convolution checks it."""
    if isinstance(value, (tuple, list)) and len(value) != 1:
        raise InvalidInputError(f"{value!r} must be one number: a convolution of signals has one axis")
    return value[0] if isinstance(value, (tuple, list)) else value


@functools.cache
def transposed(conv: type[LipschitzConv2d]) -> type[LipschitzConvTranspose2d]:
    """The transposed convolution of a method, by its convolution."""
    return _variant(LipschitzConvTranspose2d, conv, "ConvTranspose2d", "Transposed convolution")


@functools.cache
def of_signals(conv: type[LipschitzConv2d]) -> type[LipschitzConv1d]:
    """The one-dimensional convolution of a method, by its convolution."""
    return _variant(LipschitzConv1d, conv, "Conv1d", "One-dimensional convolution")


def _variant(base: Any, conv: type[LipschitzConv2d], ending: str, kind: str) -> Any:
    name = conv.__name__.removesuffix("Conv2d") + ending
    text = f"{kind} of the method of `{conv.__name__}`, whose further arguments it takes."
    return type(name, (base, conv), {"__doc__": text, "__module__": "onelip.layers"})
