"""Every layer and block where a layer of torch stood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import drop_in
import pytest
import torch
from layer_contract import perturb
from layer_parts import PARTS
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers import (
    MethodInfo,
    create_conv,
    create_conv1d,
    create_conv3d,
    create_conv_transpose,
    create_linear,
    list_methods,
)
from onelip.layers.blocks.grouping import GroupedChannelPad, HalveAndUnshuffle
from onelip.layers.blocks.lipnext import LipNeXtBlock, PartialAbs, SpatialShift
from onelip.layers.blocks.reshape import ZeroChannelPad, ZeroSpatialPad


@dataclass(frozen=True)
class Kind:
    """Arguments of a layer that all methods have, and the layer of torch with outputs of the same shape."""

    create: Callable[..., nn.Module]
    arguments: tuple[int, ...]
    options: dict[str, Any]
    torchs: Callable[[], nn.Module]
    shape: tuple[int, ...]


def _same(options: dict[str, Any] | None = None) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(4, 6, 3, padding="same", **options or {})


KINDS = {
    "conv": Kind(create_conv, (4, 6, 3), {}, _same(), (4, 5, 6)),
    "square": Kind(create_conv, (4, 6, 3), {}, _same(), (4, 4, 4)),
    "one pixel": Kind(create_conv, (4, 6, 1), {}, lambda: nn.Conv2d(4, 6, 1), (4, 3, 2)),
    "one channel": Kind(create_conv, (1, 6, 3), {}, lambda: nn.Conv2d(1, 6, 3, padding=1), (1, 5, 4)),
    "padded": Kind(
        create_conv,
        (4, 6, 3),
        {"padding": 1, "padding_mode": "zeros"},
        lambda: nn.Conv2d(4, 6, 3, padding=1),
        (4, 5, 6),
    ),
    "valid": Kind(create_conv, (4, 6, 3), {"padding": 0}, lambda: nn.Conv2d(4, 6, 3), (4, 5, 6)),
    "strided": Kind(create_conv, (4, 6, 3), {"stride": 2}, lambda: nn.Conv2d(4, 6, 3, 2, 1), (4, 5, 6)),
    "grouped": Kind(create_conv, (4, 6, 3), {"groups": 2}, _same({"groups": 2}), (4, 5, 6)),
    "dilated": Kind(create_conv, (4, 6, 3), {"dilation": 2}, _same({"dilation": 2}), (4, 5, 6)),
    "transposed": Kind(
        create_conv_transpose, (4, 6, 2), {"stride": 2}, lambda: nn.ConvTranspose2d(4, 6, 2, 2), (4, 3, 4)
    ),
    "conv1d": Kind(create_conv1d, (4, 6, 3), {}, lambda: nn.Conv1d(4, 6, 3, padding=1), (4, 7)),
    "conv3d": Kind(create_conv3d, (4, 6, 3), {}, lambda: nn.Conv3d(4, 6, 3, padding=1), (4, 3, 4, 3)),
    "linear": Kind(create_linear, (6, 4), {}, lambda: nn.Linear(6, 4), (6,)),
    "linear on rows": Kind(create_linear, (6, 4), {}, lambda: nn.Linear(6, 4), (3, 6)),
}
DERIVATIVES = ("conv", "square", "strided", "conv1d", "linear")
"""Kinds between which ways to differentiate differ."""


def _make(method: MethodInfo, kind: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    entry = KINDS[kind]
    try:
        layer = entry.create(method.key, *entry.arguments, **entry.options, dtype=dtype)
    except InvalidInputError as error:
        pytest.skip(str(error))
    perturb(layer)
    return layer


def _inputs(kind: str, count: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, *KINDS[kind].shape, dtype=dtype)


each_method = pytest.mark.parametrize("method", list_methods(), ids=lambda m: m.key)
each_kind = pytest.mark.parametrize("kind", KINDS)
each_derivative = pytest.mark.parametrize("kind", DERIVATIVES)


@each_method
class TestLayers:
    @each_kind
    def test_forward(self, method: MethodInfo, kind: str) -> None:
        layer, torchs, x = _make(method, kind), KINDS[kind].torchs(), _inputs(kind)
        drop_in.check_memory_format(layer, torchs, x)
        drop_in.check_unbatched(layer, torchs, x)
        drop_in.check_empty(layer, torchs, x)
        drop_in.check_pickle(layer, x)
        drop_in.check_autocast(layer, torchs, x)

    @each_kind
    def test_writing_in_place(self, method: MethodInfo, kind: str) -> None:
        drop_in.check_writing_in_place(_make(method, kind), _inputs(kind))

    @each_kind
    def test_fused(self, method: MethodInfo, kind: str) -> None:
        layer: Any = _make(method, kind)
        x = _inputs(kind)
        fused = layer.fuse(tuple(x.shape[2:]) if x.dim() != 3 else (1, *x.shape[2:]))
        # Circular padding of `nn.Conv2d` loses channels_last, and so does `nn.Conv3d` on small volumes.
        plain = any(isinstance(module, nn.Conv2d | nn.Conv3d) for module in fused.modules())
        drop_in.check_memory_format(fused, KINDS[kind].torchs(), x, channels_last=not plain)
        drop_in.check_empty(fused, KINDS[kind].torchs(), x)
        with torch.no_grad():
            fused(x).relu_().add_(1)

    @each_derivative
    def test_function_transforms(self, method: MethodInfo, kind: str) -> None:
        drop_in.check_function_transforms(_make(method, kind, torch.float64), _inputs(kind, 2, torch.float64))

    @each_derivative
    def test_second_derivatives(self, method: MethodInfo, kind: str) -> None:
        drop_in.check_second_derivatives(_make(method, kind, torch.float64), _inputs(kind, 1, torch.float64))

    def test_hooks(self, method: MethodInfo) -> None:
        for kind in ("conv", "linear"):
            drop_in.check_hooks(_make(method, kind), _inputs(kind))

    @pytest.mark.parametrize("size", [(1, 1), (1, 5), (2, 3), (7, 5)])
    def test_odd_sizes(self, method: MethodInfo, size: tuple[int, int]) -> None:
        layer = create_conv(method.key, 3, 5, 3)
        x = torch.randn(2, 3, *size)
        drop_in.check_memory_format(layer, nn.Conv2d(3, 5, 3, padding=1), x)


BLOCKS: dict[str, Callable[[], nn.Module]] = {
    **{name: make for name, make in PARTS.items() if name != "UnitRowsLinear"},
    "BatchCentering without a parameter": lambda: PARTS["BatchCentering"]().__class__(4, affine=False),
    "GroupedChannelPad": lambda: GroupedChannelPad(6, 2),
    "HalveAndUnshuffle": lambda: HalveAndUnshuffle(2, 2),
    "ZeroChannelPad": lambda: ZeroChannelPad(6),
    "ZeroSpatialPad": lambda: ZeroSpatialPad(3),
    "SpatialShift": lambda: SpatialShift(1.0),
    "PartialAbs": lambda: PartialAbs(0.5),
    "LipNeXtBlock": lambda: LipNeXtBlock(4, shift=1.0),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str) -> None:
    x = torch.randn(3, 4, 6, 6)
    block = BLOCKS[name]()
    for training in (True, False):
        y = block.train(training)(x)
        assert y.is_contiguous()
        last = block(x.contiguous(memory_format=torch.channels_last))
        assert last.is_contiguous(memory_format=torch.channels_last)
    drop_in.check_writing_in_place(block, x)
    drop_in.check_pickle(block, x)
    drop_in.check_hooks(block, x)
    for training in (True, False):
        assert block.train(training)(x[:0]).shape == (0, *y.shape[1:])
    assert all(number.isfinite().all() for number in block.state_dict().values()), "statistics of an empty batch"
    for training in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            assert block.train(training)(x).isfinite().all()


@pytest.mark.parametrize("name", BLOCKS)
def test_derivatives_of_blocks(name: str) -> None:
    block = BLOCKS[name]().double()
    perturb(block)
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    drop_in.check_function_transforms(block, x)
    drop_in.check_second_derivatives(block, x)
