"""The polynomial that stands for the exponential in training: close to it, a contraction, with its own gradient."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from onelip.layers.convolution import adjoint_kernel
from onelip.linalg import short_exponential
from onelip.linalg.short_exponential import ERROR, first_rows, packed_exponentials

TORI = [(1, 1), (4, 4), (3, 3), (2, 2), (9, 9), (4, 6)]
SHAPES = [(4, 4), (2, 3), (3, 2), (1, 4)]


def _weight(torus: tuple[int, int], channels: int = 4, layers: int = 3) -> Tensor:
    sides = (1, 1) if torus == (1, 1) else (3, 3)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(layers, channels, channels, *sides, dtype=torch.float64, generator=generator) / 8


def _exponentials(weight: Tensor, torus: tuple[int, int], shape: tuple[int, int]) -> Tensor:
    return packed_exponentials((weight - adjoint_kernel(weight)) / 2, torus, *shape)


def _plain(weight: Tensor, torus: tuple[int, int], shape: tuple[int, int]) -> Tensor:
    return short_exponential._plain((weight - adjoint_kernel(weight)) / 2, torus, *shape)


def test_distance_to_the_exponential_is_the_declared_one() -> None:
    angles = torch.linspace(-1, 1, 4001, dtype=torch.float64)
    values = short_exponential.short_exponential(torch.complex(torch.zeros_like(angles), angles)[:, None, None])
    distance = (values[:, 0, 0] - torch.polar(torch.ones_like(angles), angles)).abs().max()
    assert 0.97 * ERROR <= distance <= ERROR


def test_modulus_is_at_most_one() -> None:
    """|p(i t)|^2 - 1 = s q(s) for s = t^2: q is negative on intervals that cover (0, 2.9], in exact arithmetic."""
    a, b, c, d = map(Fraction, (short_exponential.A, short_exponential.B, short_exponential.C, short_exponential.D))
    # p(i t) = 1 - a s + b s^2 + i t (d - c s)
    quotient = [d * d - 2 * a, a * a + 2 * b - 2 * c * d, c * c - 2 * a * b, b * b]
    step = Fraction(841, 100) / 4096
    for index in range(4096):
        low, high = index * step, (index + 1) * step
        assert sum(q * (high if q > 0 else low) ** power for power, q in enumerate(quotient)) < 0


@pytest.mark.parametrize("torus", TORI)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("at_once", "three_from"), [(1, 1), (48, 64), (2**18, 1)])
def test_values_and_gradients_are_those_of_autograd(
    torus: tuple[int, int], shape: tuple[int, int], at_once: int, three_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_exponential, "_NUMBERS_AT_ONCE", at_once)
    monkeypatch.setattr(short_exponential, "_THREE_FROM", three_from)
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


def test_gradients_of_both_orders() -> None:
    weight = _weight((4, 4), channels=2, layers=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: _exponentials(w, (4, 4), (2, 2)), (weight,))
    assert torch.autograd.gradgradcheck(lambda w: _exponentials(w, (2, 2), (2, 1)), (weight,))


def test_nothing_but_the_kernel_is_kept() -> None:
    kernel = _weight((9, 9)).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        packed_exponentials(kernel, (9, 9), 4, 4)
    assert sum(tensor.nbytes for tensor in kept) <= kernel.nbytes


def test_first_rows_are_those_of_the_whole() -> None:
    torch.manual_seed(0)
    weight = torch.randn(2, 9, 9, dtype=torch.float64)
    skew = ((weight - weight.mT) / 20).requires_grad_()
    torch.testing.assert_close(first_rows(skew, 4), short_exponential.short_exponential(skew)[..., :4, :])
    assert torch.autograd.gradcheck(lambda matrix: first_rows(matrix, 4), skew)
