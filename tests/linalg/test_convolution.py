"""Padding and the autograd functions of convolutions, in both memory layouts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from onelip.layers.fused import PaddingMode
from onelip.linalg.convolution import circular_pad, residual_convolution, same_convolution

LAYOUTS = [torch.contiguous_format, torch.channels_last]
each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def padded_by_index(x: Tensor, pad: int) -> Tensor:
    """The definition, pixel by pixel."""
    height, width = x.shape[-2:]
    result = x.new_empty(*x.shape[:2], height + 2 * pad, width + 2 * pad)
    for row in range(height + 2 * pad):
        for column in range(width + 2 * pad):
            result[..., row, column] = x[..., (row - pad) % height, (column - pad) % width]
    return result


@each_layout
@pytest.mark.parametrize("pad", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("size", [(4, 5), (3, 3), (1, 1), (2, 6), (8, 8)], ids=str)
def test_circular_padding(size: tuple[int, int], pad: int, layout: torch.memory_format) -> None:
    x = normal(2, 3, *size).contiguous(memory_format=layout)
    assert torch.equal(circular_pad(x, (pad, pad)), padded_by_index(x, pad))


@pytest.mark.parametrize("pad", [1, 2])
def test_padding_keeps_channels_innermost(pad: int) -> None:
    x = normal(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert circular_pad(x, (pad, pad)).is_contiguous(memory_format=torch.channels_last)


def test_padding_of_one_channel_and_of_a_view() -> None:
    """Where strides alone do not tell the layout."""
    for x in (normal(2, 1, 4, 5), normal(2, 6, 4, 5)[:, ::2], normal(2, 4, 5, 3).permute(0, 3, 1, 2)[:, :2]):
        assert torch.equal(circular_pad(x, (1, 1)), padded_by_index(x, 1))


@each_layout
def test_padding_can_be_differentiated_twice(layout: torch.memory_format) -> None:
    x = normal(1, 2, 3, 4).contiguous(memory_format=layout).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: circular_pad(x, (1, 1)), (x,))
    assert torch.autograd.gradgradcheck(lambda x: circular_pad(x, (1, 1)).square(), (x,))


@pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
@pytest.mark.parametrize("function", [same_convolution, residual_convolution])
def test_convolutions_can_be_differentiated_twice(function: Callable[..., Tensor], padding_mode: PaddingMode) -> None:
    arguments = tuple(t.requires_grad_() for t in (normal(2, 2, 3, 4), normal(2, 2, 3, 3), normal(2)))
    assert torch.autograd.gradcheck(lambda *given: function(*given, padding_mode), arguments)
    assert torch.autograd.gradgradcheck(lambda *given: function(*given, padding_mode), arguments)


def test_gradients_where_a_residual_layer_computes_its_activation_anew() -> None:
    arguments = tuple(t.requires_grad_() for t in (normal(2, 2, 3, 6), normal(2, 2, 1, 1), normal(2)))
    assert torch.autograd.gradcheck(
        lambda x, kernel, bias: residual_convolution(x, kernel, bias, "circular"), arguments
    )


@each_layout
@pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
@pytest.mark.parametrize(("size", "side"), [((4, 5), 3), ((8, 8), 5), ((2, 3), 7), ((1, 1), 3), ((4, 4), 1)], ids=str)
def test_residual_convolution_without_gradients_is_that_with_them(
    size: tuple[int, int], side: int, padding_mode: PaddingMode, layout: torch.memory_format
) -> None:
    """Where nothing is kept, the activation goes into the padded image at once; x itself is not written to."""
    x, kernel = normal(2, 3, *size).contiguous(memory_format=layout), normal(3, 3, side, side)
    before = x.clone()
    for bias in (normal(3), None):
        expected = residual_convolution(x.clone().requires_grad_(), kernel, bias, padding_mode).detach()
        for without in (torch.no_grad, torch.inference_mode):
            with without():
                y = residual_convolution(x, kernel, bias, padding_mode)
            torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    assert torch.equal(x, before)
