"""Functions at all frequencies that keep little: values and gradients are those of torch's own differentiation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onelip.layers.sandwich_halves import SandwichHalves
from onelip.linalg import packed_functions
from onelip.linalg.orthogonal import CayleyTransforms
from onelip.linalg.packed_functions import MatrixFunction, packed_values
from onelip.linalg.polar import PolarFactors
from onelip.linalg.triangular import RidgeQuotients

TORI = [(4, 4), (3, 3), (2, 2), (9, 9), (4, 6)]
FUNCTIONS: list[tuple[MatrixFunction, tuple[int, int], float]] = [
    (CayleyTransforms(), (4, 4), 1e-10),
    (CayleyTransforms(), (5, 3), 1e-10),
    (SandwichHalves(3), (5, 3), 1e-10),
    (RidgeQuotients(), (4, 4), 1e-9),
    (RidgeQuotients(), (5, 3), 1e-9),
    (PolarFactors(), (4, 4), 1e-6),
    (PolarFactors(), (7, 3), 1e-6),
    (PolarFactors(), (3, 7), 1e-6),
    (PolarFactors(), (4, 3), 1e-6),
]
CASES = [pytest.param(*case, id=f"{type(case[0]).__name__}-{case[1][0]}x{case[1][1]}") for case in FUNCTIONS]


def _kernel(shape: tuple[int, int], layers: int = 3) -> Tensor:
    return torch.randn(layers, *shape, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 8


@pytest.mark.parametrize("torus", TORI)
@pytest.mark.parametrize(("function", "shape", "error"), CASES)
@pytest.mark.parametrize("at_once", [1, 2**24], ids=["layer by layer", "together"])
def test_values_and_gradients_are_those_of_autograd(
    function: MatrixFunction,
    shape: tuple[int, int],
    error: float,
    torus: tuple[int, int],
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed_functions, "_BYTES_AT_ONCE", at_once)
    kernel = _kernel(shape).requires_grad_()
    expected = packed_functions.plain_values(function, kernel, torus)
    cotangents = [torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape) for value in expected]
    (gradient,) = torch.autograd.grad(expected, kernel, cotangents)
    actual = packed_values(function, kernel, torus)
    (other,) = torch.autograd.grad(actual, kernel, cotangents)
    for here, there in zip(actual, expected, strict=True):
        torch.testing.assert_close(here, there, rtol=0, atol=error)
    scale = float(gradient.abs().max())
    torch.testing.assert_close(other, gradient, rtol=0, atol=10 * error * scale)


@pytest.mark.parametrize(("function", "shape", "error"), CASES)
def test_what_is_kept_does_not_grow_with_the_steps_on_the_way(
    function: MatrixFunction, shape: tuple[int, int], error: float
) -> None:
    """The kernel, the values, and for polar factors the eigenvectors: not the matrices, nor their powers."""
    kernel = _kernel(shape).float().requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        values = packed_values(function, kernel, (9, 9))
    of_values = sum(value.nbytes for value in values)
    eigenvectors = 8 * 3 * 45 * min(shape) ** 2 if isinstance(function, PolarFactors) else 0
    small = 8 * 3 * 45 * (max(shape) + 1)
    assert sum(tensor.nbytes for tensor in kept) <= kernel.nbytes + of_values + eigenvectors + small


@pytest.mark.parametrize("function", [CayleyTransforms(), SandwichHalves(2)], ids=["cayley", "sandwich"])
def test_second_derivatives(function: MatrixFunction) -> None:
    kernel = _kernel((4, 2), layers=1)[..., :2, :2].contiguous().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda k: packed_values(function, k, (2, 2)), (kernel,))
