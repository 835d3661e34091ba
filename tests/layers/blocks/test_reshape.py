"""Modules that change shapes only: against torch's own operations, as projections and isometries, and their errors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import FirstChannels, ZeroChannelPad, ZeroSpatialPad


@pytest.mark.parametrize(("shape", "dim"), [((2, 3, 4, 5), 1), ((2, 3), 1), ((2, 3), -1), ((2, 5, 3), -1), ((3, 5), 0)])
def test_channels_are_appended_and_taken_back(shape: tuple[int, ...], dim: int) -> None:
    """Both act on their own dimension alone: the zeros are behind, and the first channels are the input again."""
    x = torch.randn(shape)
    padded = ZeroChannelPad(7, dim)(x)
    zeros = torch.zeros([4 if index == dim % x.dim() else side for index, side in enumerate(shape)])
    assert torch.equal(padded, torch.cat([x, zeros], dim))
    assert torch.equal(FirstChannels(3, dim)(padded), x)


@pytest.mark.parametrize("dim", [1, -1])
def test_as_many_channels_as_there_are(dim: int) -> None:
    x = torch.randn(2, 3)
    assert torch.equal(ZeroChannelPad(3, dim)(x), x)
    assert torch.equal(FirstChannels(3, dim)(x), x)


@pytest.mark.parametrize("module", [ZeroChannelPad(3), FirstChannels(5)], ids=lambda module: type(module).__name__)
@pytest.mark.parametrize("shape", [(2, 4, 6, 6), (2, 4)])
def test_a_channel_is_neither_lost_nor_made_up(module: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match=rf"{type(module).__name__}\(\d\) got an input of 4 channels"):
        module(torch.zeros(shape))


@pytest.mark.parametrize("module_type", [ZeroChannelPad, FirstChannels])
def test_errors_name_the_last_dimension_where_that_is_asked_for(module_type: type[nn.Module]) -> None:
    channels = 3 if module_type is ZeroChannelPad else 9
    with pytest.raises(InvalidInputError, match="got an input of 6 channels"):
        module_type(channels, dim=-1)(torch.zeros(2, 4, 6))


@pytest.mark.parametrize(("size", "padded"), [((4, 6), (6, 6)), ((3, 3), (3, 3)), ((1, 7), (3, 9))])
def test_rows_and_columns_are_appended_up_to_a_multiple(size: tuple[int, int], padded: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size)
    y = ZeroSpatialPad(3)(x)
    assert y.shape == (2, 3, *padded)
    assert torch.equal(y[..., : size[0], : size[1]], x)
    assert y.count_nonzero() == x.numel()


def test_arguments_are_shown() -> None:
    assert repr(ZeroChannelPad(4)) == "ZeroChannelPad(4, dim=1)"
    assert repr(FirstChannels(4, -1)) == "FirstChannels(4, dim=-1)"
    assert repr(ZeroSpatialPad(2)) == "ZeroSpatialPad(2)"
