"""Wide Sandwich layers on CPUs keep one of two matrices per frequency: the same outputs and gradients, less memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import onelip
from onelip.layers import SandwichConv2d, create_conv
from onelip.layers.contract import Request
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.methods.sandwich import SandwichFrequencies
from onelip.layers.sandwich_factors import SandwichFactors, WideSandwich
from onelip.linalg.orthogonal import cayley, lower_block
from onelip.linalg.tensor_modes import traced_operations

SIZES = [(1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (9, 9)]
"""Tori of real frequencies alone, of one matrix with even and odd sides, and of two matrices."""


def _layer(dtype: torch.dtype = torch.float64, **options: Any) -> LipschitzConv2d:
    torch.manual_seed(0)
    layer = create_conv("sandwich", 4, 4, 3, dtype=dtype, **options)
    layer.train()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return layer


def _images(size: tuple[int, int], dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, 4, *size, dtype=dtype, generator=generator).requires_grad_()


def _pass(layer: LipschitzConv2d, x: Tensor) -> list[Tensor]:
    y = layer(x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y, *torch.autograd.grad((y * weights).sum(), [x, *(p for p in layer.parameters() if p.requires_grad)])]


def _make_all_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onelip.layers.methods.sandwich.is_wide", lambda *_: True)


def _core(layer: LipschitzConv2d, size: tuple[int, int]) -> object:
    operator: Any = layer.transform(size)
    while hasattr(operator, "operator"):  # behind a factor
        operator = operator.operator
    return operator


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", [{}, {"padding_mode": "zeros"}, {"lipschitz": 0.5}], ids=str)
def test_outputs_and_gradients_are_those_of_plain_operations(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], options: dict[str, Any]
) -> None:
    """In float64, where torch differentiates every step."""
    layer, x = _layer(**options), _images(size)
    with traced_operations():
        expected = _pass(layer, x)
    _make_all_wide(monkeypatch)
    assert isinstance(_core(layer, size), WideSandwich)
    torch.testing.assert_close(_pass(layer, x), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [(2, 2), (3, 3), (2, 3)])
def test_gradients_of_both_orders(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    wide = torch.float64
    tensors = [torch.randn(shape, dtype=wide) for shape in ((2, 2, *size), (4, 2, 3, 3), (2,))]
    tensors = [tensor.requires_grad_() for tensor in tensors]

    def apply(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        return WideSandwich.of_kernel(kernel, size, size, SandwichFactors(2)).apply(x, bias)

    assert torch.autograd.gradcheck(apply, tensors)
    assert torch.autograd.gradgradcheck(apply, tensors)


@pytest.mark.parametrize(("scale", "condition"), [(1.0, 2**6), (1e9, 2**20)])
def test_the_lower_block_follows_from_the_upper_one(scale: float, condition: float) -> None:
    """Also where the matrix is scaled down; rounding grows with the condition number of I + A."""
    matrix = scale * torch.randn(3, 7, 4, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    isometry = cayley(matrix)
    found, expected = lower_block(matrix, isometry[:, :4]), isometry[:, 4:]
    torch.testing.assert_close(found, expected, rtol=0, atol=64 * condition * torch.finfo(torch.float64).eps)


@pytest.mark.parametrize("frozen", ["weight", "bias", "x"])
def test_what_needs_no_gradient_gets_none(monkeypatch: pytest.MonkeyPatch, frozen: str) -> None:
    layer, x = _layer(), _images((4, 4))
    tensors = {"weight": layer.weight, "bias": layer.bias, "x": x}
    _make_all_wide(monkeypatch)
    layer(x).square().sum().backward()
    expected = {name: tensor.grad for name, tensor in tensors.items() if tensor is not None}
    for tensor in tensors.values():
        assert tensor is not None
        tensor.grad = None
    still = tensors[frozen]
    assert still is not None
    still.requires_grad_(False)
    layer(x).square().sum().backward()
    for name, tensor in tensors.items():
        assert tensor is not None
        if name == frozen:
            assert tensor.grad is None
        else:
            torch.testing.assert_close(tensor.grad, expected[name])


def test_autocast_does_the_same_as_with_both_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices in float32, images in bfloat16, the backward pass outside of the block."""
    layer, x = _layer(torch.float32), _images((4, 4), torch.float32)
    results = []
    for wide in (False, True):
        if wide:
            _make_all_wide(monkeypatch)
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        assert y.dtype == torch.bfloat16
        results.append([y.detach().float(), *torch.autograd.grad(y.float().square().sum(), [x, *layer.parameters()])])
    for kept, again in zip(*results, strict=True):
        torch.testing.assert_close(again, kept, rtol=0, atol=2**-7 * float(kept.abs().max()))


def test_which_layers_are_wide() -> None:
    """One group, more than 4 MB of matrices in float32 or better, in training, unless it is to be exact."""
    with torch.device("meta"):
        wide, narrow = SandwichConv2d(256, 256, 3).train(), SandwichConv2d(32, 32, 3).train()
        half = SandwichConv2d(256, 256, 3, dtype=torch.bfloat16).train()
        assert isinstance(wide.transform((8, 8)), WideSandwich)
        for layer in (narrow, half, SandwichConv2d(256, 256, 3).eval()):
            assert isinstance(layer.transform((8, 8)), SandwichFrequencies)
        request = Request((8, 8), training=True, approximate=True)
        assert not SandwichConv2d(512, 512, 3, groups=2).train().transforms_separately(request)
        with onelip.exact_transforms():
            assert isinstance(wide.transform((8, 8)), SandwichFrequencies)
        with traced_operations():
            assert isinstance(wide.transform((8, 8)), SandwichFrequencies)


def test_one_matrix_per_frequency_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 x 4 x 4 numbers of V beside the images and the kernel."""
    _make_all_wide(monkeypatch)
    layer, x = _layer(), _images((4, 4))
    kept: dict[int, Tensor] = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(t.data_ptr(), t), lambda t: t):
        layer(x)
    sizes = sorted(tensor.numel() for tensor in kept.values() if tensor.shape[-2:] == (4, 4) and tensor.dim() == 3)
    assert sizes == [16 * 4 * 4]
