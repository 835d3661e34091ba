"""Layers as plain operations on one vector, for certificate files.

A layer in the frequency domain is listed as the circular convolution that it is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.certification.leaves import padding_of
from onelip.certification.listed_operators import SPECTRAL, Unlisted, dense_kernel, listed_operator, torus_of_images
from onelip.certification.plain_operations import (
    ABS,
    RELU,
    Operation,
    combination,
    convolution,
    gather,
    sorting,
)
from onelip.certification.witnesses import Geometry
from onelip.errors import InvalidInputError
from onelip.layers import (
    Abs,
    BatchCentering,
    GroupSort,
    MaxMin,
    ScaledAdaptiveAvgPool2d,
    ScaledAvgPool2d,
    ScaledMaxPool2d,
    UnitRowsLinear,
)
from onelip.layers.fused import FusedLayer
from onelip.layers.geometry import ConvolutionGeometry
from onelip.layers.operators import Framed, Operator
from onelip.linalg.fourier import Size

_AVERAGES = (nn.AvgPool2d, nn.AdaptiveAvgPool2d, ScaledAvgPool2d, ScaledAdaptiveAvgPool2d)
_POOLS = (*_AVERAGES, nn.MaxPool2d, ScaledMaxPool2d)
_AFFINE = (BatchCentering, nn.BatchNorm1d, nn.BatchNorm2d)

_LAYERS = (nn.Conv2d, nn.Linear, UnitRowsLinear, FusedLayer, MaxMin, GroupSort, nn.ReLU, Abs, *_POOLS, *_AFFINE)


class Listing:
    """What was found so far. The first `rest` entries of the vector are left alone by what is added."""

    def __init__(self) -> None:
        self.found: list[Operation] = []
        self.rest = 0
        self._moved: tuple[Tensor, int] | None = None
        """Where the entries come from since the last operation, and of how many."""

    def add(self, operation: Operation) -> None:
        """An operation on the entries behind the first ones."""
        self.prefix()
        self.found.append(operation.beside(self.rest))

    def move(self, index: Tensor, length: int) -> None:
        """Entries from other places. Moves one after the other are one, which is what does not copy in the end."""
        behind = torch.where(index < 0, index, index + self.rest)
        index, length = torch.cat([torch.arange(self.rest), behind]), self.rest + length
        if self._moved is not None:
            before, length = self._moved
            index = torch.where(index < 0, index, before[index])
        self._moved = index, length

    def prefix(self) -> str:
        """Of the names of the next operation's tensors; what was moved is listed before it."""
        if self._moved is not None:
            (index, length), self._moved = self._moved, None
            moves = torch.cat([index != torch.arange(len(index)), torch.tensor([length != len(index)])])
            if bool(moves.any()):
                first = min(int(moves.long().argmax()), len(index) - 1)  # entries before stay where they are
                first = int(torch.where(index[first:] < 0, first, index[first:]).amin().clamp(max=first))
                operation = gather(self.prefix(), torch.where(index < 0, index, index - first)[first:])
                self.found.append(operation.beside(first))
        return f"{len(self.found)}."


def is_layer(module: nn.Module) -> bool:
    """Whether a module is listed as a whole: known layers, and what onelip moves entries with. Others are entered."""
    owner = next(cls for cls in type(module).__mro__ if "forward" in vars(cls))
    if "forward" in vars(module) or not owner.__module__.startswith(("torch.nn.", "onelip.")):
        return False  # a subclass may compute anything
    numbers = next(module.parameters(), None) is not None or next(module.buffers(), None) is not None
    single = type(module).__module__.startswith("onelip.") and not numbers and next(module.children(), None) is None
    return isinstance(module, _LAYERS) or single


def add_layer(listing: Listing, module: nn.Module, x: Tensor) -> None:
    """What a layer does to one input of zeros: its shape matters."""
    shape = tuple(x.shape[1:])
    if isinstance(module, nn.Conv2d):
        listing.add(_torch_convolution(listing.prefix(), module, shape))
    elif isinstance(module, nn.Linear | UnitRowsLinear):
        if len(shape) != 1:
            raise Unlisted("it maps the last of several dimensions")
        weight = module.weight if isinstance(module, nn.Linear) else F.normalize(module.weight, dim=1)
        listing.add(convolution(listing.prefix(), weight[..., None, None], module.bias, Geometry((1, 1)), "linear"))
    elif isinstance(module, FusedLayer) and isinstance(operator := module.operator(), Framed):
        _add_core(listing, operator, module.bias, x)
    elif isinstance(module, FusedLayer):
        _add_operator(listing, module.operator(), module.bias, shape)
    elif isinstance(module, MaxMin | GroupSort):
        if module.dim % x.dim() != 1:
            raise Unlisted(f"it sorts along dimension {module.dim}")
        listing.add(sorting(2 if isinstance(module, MaxMin) else module.group_size))
    elif isinstance(module, nn.ReLU | Abs):
        listing.add(RELU if isinstance(module, nn.ReLU) else ABS)
    elif isinstance(module, _POOLS):
        add_pool(listing, module, x)
    elif isinstance(module, _AFFINE):
        listing.add(_affine(listing.prefix(), module, shape))
    elif (index := moved_index(module, [x])) is not None:
        listing.move(index, x.numel())
    else:
        raise Unlisted("it does not only move entries")


def _add_operator(listing: Listing, operator: Operator, bias: Tensor | None, shape: tuple[int, ...]) -> None:
    """An operator on images (c, h, w) or vectors."""
    image = (shape[1], shape[2]) if len(shape) == 3 else (1, 1)
    torus = torus_of_images(operator, image)
    if torus == image:
        listing.add(listed_operator(listing.prefix(), operator, bias, shape, image))
        return
    _embed(listing, shape, torus)
    on_torus: Any = (
        replace(operator, image=torus) if isinstance(operator, SPECTRAL) else replace(operator, padding_mode="circular")
    )
    _add_operator(listing, on_torus, bias, (shape[0], *torus))
    tensor = next(iter(operator.tensors().values()))
    channels = on_torus.apply(tensor.new_zeros(1, shape[0], *torus), bias).shape[1]
    numbers = torch.arange(channels * math.prod(torus)).reshape(channels, *torus)
    listing.move(numbers[:, : image[0], : image[1]].flatten(), numbers.numel())


def _embed(listing: Listing, shape: tuple[int, ...], torus: Size) -> None:
    """The image with zeros behind it."""
    numbers = torch.arange(1, math.prod(shape) + 1).reshape(shape)
    padded = F.pad(numbers, (0, torus[1] - shape[2], 0, torus[0] - shape[1]))
    listing.move(padded.flatten() - 1, math.prod(shape))


def _add_core(listing: Listing, operator: Framed, bias: Tensor | None, x: Tensor) -> None:
    """What stands around the core of a convolution moves entries; the core is an operator."""
    around, core = operator.frame, operator.core
    if not isinstance(around, ConvolutionGeometry):
        raise Unlisted("it is a convolution of volumes")
    read = around.core_input(x)
    index = None if len(read) != 1 else moved_index(around.core_input, [x])
    if index is None:
        raise Unlisted("it has a dilation in the frequency domain")
    listing.move(index, x.numel())
    _add_operator(listing, core, bias, tuple(read.shape[1:]))
    outputs = core.apply(read, bias)

    def write(y: Tensor) -> Tensor:
        y = y.unflatten(1, (around.groups, -1))[:, :, : around.kept].flatten(1, 2)
        y = around.geometry.write(y, around.image(tuple(x.shape)))
        return y.squeeze(-2) if around.signal else y

    index = moved_index(write, [outputs])
    assert index is not None
    listing.move(index, outputs.numel())


def add_pool(listing: Listing, module: nn.Module, x: Tensor) -> None:
    """Windows without padding: their means are a convolution, their maxima the first of what is sorted."""
    y = module(x)
    window, stride = _window(module, x, y)
    if isinstance(module, _AVERAGES):
        factor = float(copy.deepcopy(module).double()(torch.ones_like(x, dtype=torch.float64))[0, 0, 0, 0])
        weight = torch.full((1, 1, *window), factor / math.prod(window), dtype=torch.float64)
        channels, image = x.shape[1], (x.shape[2], x.shape[3])
        if image[0] % stride[0] == 0 and window[0] == stride[0]:  # windows do not reach the next channel
            listing.add(convolution(listing.prefix(), weight, None, Geometry((channels * image[0], image[1]), stride)))
        else:
            weight = dense_kernel(weight.expand(channels, -1, -1, -1), channels)
            listing.add(convolution(listing.prefix(), weight, None, Geometry(image, stride)))
        return
    numbers = torch.arange(x.numel(), dtype=torch.float64).reshape(x.shape)
    windows = F.unfold(numbers, window, stride=stride).reshape(x.shape[1], math.prod(window), -1)
    listing.move(windows.transpose(0, 1).flatten().long(), x.numel())
    listing.add(sorting(math.prod(window)))
    listing.move(torch.arange(y.numel()), windows.numel())
    scale = getattr(module, "scale", 1)
    if scale != 1:
        listing.add(combination(listing.prefix(), [scale], y.numel()))


def moved_index(function: Callable[..., Any], tensors: Sequence[Tensor]) -> Tensor | None:
    """Where each entry of the result comes from, -1 for zeros; None if it does not come from one place.

    Seen on numbered entries, and held against random ones, some of them negative.
    """
    length = sum(tensor.numel() for tensor in tensors)

    def applied(vector: Tensor) -> Tensor:
        parts = vector.split([tensor.numel() for tensor in tensors])
        return function(*(part.reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True))).flatten()

    try:
        index = applied(torch.arange(1, length + 1, dtype=torch.float64))
        if not bool(((index >= 0) & (index <= length) & (index == index.round())).all()):
            return None
        index = index.long() - 1
        draw = torch.Generator().manual_seed(0)
        for _ in range(2):
            vector = torch.randn(length, generator=draw, dtype=torch.float64)
            if not torch.equal(applied(vector), F.pad(vector, (0, 1))[index]):
                return None
    except (RuntimeError, TypeError, ValueError, IndexError, InvalidInputError):
        return None
    return index


# Layers of torch's


def _torch_convolution(prefix: str, conv: nn.Conv2d, shape: tuple[int, ...]) -> Operation:
    """With groups and dilation written out as zeros."""
    if conv.padding_mode not in ("zeros", "circular") or len(shape) != 3:
        raise Unlisted(f"its padding is {conv.padding_mode}")
    weight, (down, right) = dense_kernel(conv.weight, conv.groups), conv.dilation
    if (down, right) != (1, 1):
        height, width = down * (weight.shape[2] - 1) + 1, right * (weight.shape[3] - 1) + 1
        dilated = weight.new_zeros((*weight.shape[:2], height, width))
        dilated[:, :, ::down, ::right] = weight
        weight = dilated
    sides = padding_of(conv)
    if any(before != after for before, after in sides):
        raise Unlisted("it has a kernel of even sides with padding='same'")
    padding = sides[0][0], sides[1][0]
    # A stride beyond the padded image reads one pixel, as the smaller one does.
    stride = min(conv.stride[0], shape[1] + 2 * padding[0]), min(conv.stride[1], shape[2] + 2 * padding[1])
    circular = conv.padding_mode == "circular"
    for side, tap, step, pad in zip(shape[1:], weight.shape[2:], stride, padding, strict=True):
        count = (side + 2 * pad - tap) // step + 1
        if pad >= tap or (circular and (side % step or count * step > side)):
            raise Unlisted("its padding is larger than the format allows")
    return convolution(prefix, weight, conv.bias, Geometry((shape[1], shape[2]), stride, padding, circular))


def _affine(prefix: str, module: nn.Module, shape: tuple[int, ...]) -> Operation:
    """A factor and a shift of each channel."""
    channels = shape[0]
    inside = copy.deepcopy(module).double()
    numbers = torch.stack([torch.zeros(shape), torch.ones(shape)]).double()
    shift, both = inside(numbers).reshape(2, channels, -1)[:, :, 0]
    centred = isinstance(module, BatchCentering) and torch.allclose(both - shift, torch.ones_like(shift), 1e-12, 0)
    factors = torch.ones_like(shift) if centred else both - shift
    image = (shape[1], shape[2]) if len(shape) == 3 else (math.prod(shape[1:]), 1)
    return convolution(prefix, torch.diag(factors)[..., None, None], shift, Geometry(image))


def _window(module: Any, x: Tensor, y: Tensor) -> tuple[Size, Size]:
    """Window and stride of a pooling without padding."""
    sides = (x.shape[2], x.shape[3]), (y.shape[2], y.shape[3])
    if isinstance(module, nn.AdaptiveAvgPool2d | ScaledAdaptiveAvgPool2d):
        if any(side % out for side, out in zip(*sides, strict=True)):
            raise Unlisted("its windows are of several sizes")
        window = sides[0][0] // sides[1][0], sides[0][1] // sides[1][1]
        return window, window
    odd = getattr(module, "padding", 0) not in (0, (0, 0)) or getattr(module, "ceil_mode", False)
    if odd or getattr(module, "dilation", 1) not in (1, (1, 1)) or getattr(module, "return_indices", False):
        raise Unlisted("it pools with padding, dilation or ceil_mode")
    window, stride = _pair(module.kernel_size), getattr(module, "stride", None)
    return window, window if stride is None else _pair(stride)


def _pair(value: Any) -> Size:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
