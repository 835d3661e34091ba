"""Arguments of layers: read as torch reads them, refused in one line where they are not allowed."""

from __future__ import annotations

import math
import os
import sys
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.geometry import Geometry
from onelip.linalg.fourier import Size

_ONELIP = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Types that parameters may have."""

MANY_PARAMETERS = 2**18
"""From so many parameters on a layer that wastes most of them says so."""


def check_numbers(layer: nn.Module, x: Any) -> None:
    """Inputs are tensors of floating-point numbers, which images of bytes are not."""
    if not isinstance(x, Tensor) and not hasattr(x, "__torch_function__"):  # certificates trace with such a value
        raise InvalidInputError(f"{type(layer).__name__} expects a tensor, got a {type(x).__name__}")
    if not x.is_floating_point():
        raise InvalidInputError(
            f"{type(layer).__name__} expects floating-point numbers such as float32, got {x.dtype}; "
            "images of bytes become numbers in [0, 1] by x / 255"
        )


def check_type(layer: nn.Module, x: Tensor, own: Tensor) -> None:
    """An input has the type of the layer's numbers, unless autocast converts both; traced values have any."""
    if x.dtype == own.dtype or type(x) is not Tensor or own.dtype not in FLOATING:
        return
    device = x.device.type
    if device == "meta" or torch.is_autocast_enabled(device):
        return
    raise InvalidInputError(
        f"{type(layer).__name__} has numbers of type {own.dtype}, its input is {x.dtype}: convert one, "
        f"x.to({own.dtype}) or model.to({x.dtype})"
    )


def check_device_and_dtype(layer: nn.Module, device: Any, dtype: Any) -> None:
    """A floating type, and a device that torch knows."""
    if dtype is not None and dtype not in FLOATING:
        allowed = ", ".join(str(each) for each in FLOATING)
        raise InvalidInputError(f"{type(layer).__name__}: dtype={dtype!r} is not supported, use one of {allowed}")
    try:
        if device is not None:
            torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidInputError(
            f'{type(layer).__name__}: device={device!r} is not known, use for example "cpu" or "cuda"'
        ) from error


def check_positive(layer: nn.Module, **numbers: int) -> None:
    """Counts are positive integers."""
    for name, number in numbers.items():
        if type(number) is not int or number < 1:
            raise InvalidInputError(f"{type(layer).__name__}: {name}={number!r} must be a positive integer")


def integers(layer: nn.Module, name: str, value: Any, smallest: int, axes: int) -> Any:
    """One integer for all axes, or one for each."""
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(numbers) != axes or any(type(number) is not int or number < smallest for number in numbers):
        count, kind = "two" if axes == 2 else "three", "positive" if smallest == 1 else "non-negative"
        raise InvalidInputError(f"{type(layer).__name__}: {name}={value!r} must be one or {count} {kind} integers")
    return numbers


def pair(layer: nn.Module, name: str, value: Any, smallest: int = 1) -> Size:
    """One integer, or one for rows and one for columns."""
    return integers(layer, name, value, smallest, 2)


def warn_of_squares(layer: nn.Module, needed: int) -> None:
    """Say so where a method that needs a square operator pays for it in parameters, many times what torch needs."""
    used = sum(parameter.numel() for parameter in layer.parameters())
    if used >= MANY_PARAMETERS and used > 8 * needed:
        smaller = ", or a small rank=" if hasattr(layer, "rank") else ""
        warnings.warn(
            f"{type(layer).__name__} has {used:,} parameters in place of {needed:,}, because its operator is square; "
            f"take aol, bcop or lot, which need no square{smaller}",
            stacklevel=_callers_level(),
        )


def _callers_level() -> int:
    """How many frames up the first line that is not onelip's stands, as `warnings.warn` counts them."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_ONELIP):
        frame, level = frame.f_back, level + 1
    return level


def check_groups(layer: nn.Module, in_channels: int, out_channels: int, groups: int) -> None:
    """Groups divide both numbers of channels."""
    check_positive(layer, groups=groups)
    if in_channels % groups or out_channels % groups:
        raise InvalidInputError(
            f"{type(layer).__name__}: groups={groups} must divide in_channels={in_channels} and "
            f"out_channels={out_channels}"
        )


def read_geometry(
    layer: nn.Module,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    circular: bool,
    output_padding: Any = None,
) -> Geometry:
    """The geometry that the arguments describe, of a transposed convolution where `output_padding` is given."""
    kernel = pair(layer, "kernel_size", kernel_size)
    transposed = output_padding is not None
    extra = pair(layer, "output_padding", output_padding, 0) if transposed else (0, 0)
    geometry = Geometry(
        kernel,
        pair(layer, "stride", stride),
        _padding(layer, padding),
        pair(layer, "dilation", dilation),
        circular,
        transposed,
        extra,
    )
    name = type(layer).__name__
    if geometry.padding is None and extra != (0, 0):
        raise InvalidInputError(f'{name}: output_padding={extra} must be 0 with padding="same"')
    if any(more >= max(s, d) for more, s, d in zip(extra, geometry.stride, geometry.dilation, strict=True)):
        raise InvalidInputError(f"{name}: output_padding={extra} must be smaller than the stride or the dilation")
    if any(math.gcd(s, d) > 1 for s, d in zip(geometry.stride, geometry.dilation, strict=True)):
        raise InvalidInputError(
            f"{name}: stride={geometry.stride} and dilation={geometry.dilation} have a common divisor g, so that only "
            "every g-th pixel is read; pick those first, as x[..., ::g, ::g], and divide both by g"
        )
    if circular and geometry.outputs_beyond_same > 0:
        raise InvalidInputError(
            f"{name}: circular padding={padding!r} repeats pixels, which expands distances, for kernel size {kernel}; "
            'use "same", fewer, or padding_mode="zeros"'
        )
    return geometry.simplified()


def _padding(layer: nn.Module, padding: Any) -> Size | None:
    if padding == "same":
        return None
    if isinstance(padding, str) and padding != "valid":
        raise InvalidInputError(
            f'{type(layer).__name__}: padding={padding!r} is not supported, use "same", "valid" or an integer'
        )
    return (0, 0) if padding == "valid" else pair(layer, "padding", padding, 0)
