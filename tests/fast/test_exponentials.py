"""The short exponential at all frequencies, a few at a time: against its definition, and what is kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onelip.fast import exponentials
from onelip.linalg.convolution import adjoint_kernel
from onelip.linalg.short_exponential import packed_exponentials

TORI = [(1, 1), (4, 4), (3, 3), (2, 2), (9, 9), (4, 6)]
SHAPES = [(4, 4), (2, 3), (3, 2), (1, 4)]


def _weight(torus: tuple[int, int], channels: int = 4, layers: int = 3) -> Tensor:
    sides = (1, 1) if torus == (1, 1) else (3, 3)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(layers, channels, channels, *sides, dtype=torch.float64, generator=generator) / 8


def _exponentials(weight: Tensor, torus: tuple[int, int], shape: tuple[int, int]) -> Tensor:
    return packed_exponentials((weight - adjoint_kernel(weight)) / 2, torus, *shape)


def _plain(weight: Tensor, torus: tuple[int, int], shape: tuple[int, int]) -> Tensor:
    return packed_exponentials.body((weight - adjoint_kernel(weight)) / 2, torus, *shape)


@pytest.mark.parametrize("torus", TORI)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("at_once", "three_from"), [(1, 1), (48, 64), (2**18, 1)])
def test_values_and_gradients_are_those_of_autograd(
    torus: tuple[int, int], shape: tuple[int, int], at_once: int, three_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exponentials, "_NUMBERS_AT_ONCE", at_once)
    monkeypatch.setattr(exponentials, "_THREE_FROM", three_from)
    weight = _weight(torus).requires_grad_()
    actual, expected = _exponentials(weight, torus, shape), _plain(weight, torus, shape)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-14)
    cotangent = torch.linspace(-1, 1, actual.numel(), dtype=actual.dtype).reshape(actual.shape)
    found, (gradient,) = (
        torch.autograd.grad(actual, weight, cotangent),
        torch.autograd.grad(expected, weight, cotangent),
    )
    torch.testing.assert_close(found[0], gradient, rtol=0, atol=1e-12 * float(gradient.abs().max()))


def test_gradient_of_a_matrix_of_which_few_columns_are_used() -> None:
    weight = _weight((1, 1), channels=12, layers=1).requires_grad_()
    actual, expected = (of(weight, (1, 1), (12, 12)) for of in (_exponentials, _plain))
    found, gradient = (torch.autograd.grad(value[..., :2].square().sum(), weight)[0] for value in (actual, expected))
    torch.testing.assert_close(found, gradient, rtol=0, atol=1e-13)


def test_nothing_but_the_kernel_is_kept() -> None:
    kernel = _weight((9, 9)).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        packed_exponentials(kernel, (9, 9), 4, 4)
    assert sum(tensor.nbytes for tensor in kept) <= kernel.nbytes
