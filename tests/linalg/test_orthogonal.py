"""Cayley, Cholesky and exponential against their definitions, scipy, and exact rational arithmetic."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
import torch
import torch.nn.functional as F
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.linalg import orthogonal
from onelip.linalg.orthogonal import (
    cayley,
    skew_exponential,
    skew_exponential_rows,
    skew_kernel,
)

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(6, 6), (9, 5), (5, 9), (2, 3, 7, 4), (1, 1), (1, 3)]


def _singular_values(matrix: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrix.to(torch.complex128))


def _random_skew(dtype: torch.dtype, norm: float, *shape: int) -> Tensor:
    matrix = torch.randn(*shape, dtype=dtype)
    skew = matrix - matrix.mH
    return norm * skew / torch.linalg.matrix_norm(skew, ord=2)[..., None, None]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-12, 1.0, 100.0, 1e12, 1e30])
def test_cayley_is_an_isometry_for_any_scale(dtype: torch.dtype, shape: tuple[int, ...], scale: float) -> None:
    torch.manual_seed(0)
    matrix = (torch.randn(shape, dtype=dtype) * scale).requires_grad_()
    result = cayley(matrix)
    values = _singular_values(result.detach())
    # eps * the largest norm that the transform lets through is eps^(1/2) / 8
    assert (values - 1).abs().max() <= torch.finfo(dtype).eps ** 0.5 / 8
    result.real.sum().backward()
    assert matrix.grad is not None
    assert torch.isfinite(matrix.grad.abs()).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_cayley_is_the_formula(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    identity = torch.eye(4, dtype=dtype)
    square = torch.randn(4, 4, dtype=dtype)
    skew = square - square.mH
    torch.testing.assert_close(cayley(square), (identity - skew) @ torch.linalg.inv(identity + skew))
    lower = torch.randn(3, 4, dtype=dtype)
    a = skew + lower.mH @ lower
    inverse = torch.linalg.inv(identity + a)
    tall = torch.cat([square, lower])
    torch.testing.assert_close(cayley(tall), torch.cat([(identity - a) @ inverse, -2 * lower @ inverse]))
    torch.testing.assert_close(cayley(tall.mH), cayley(tall).mH)


def test_skew_kernel_gives_a_skew_symmetric_convolution() -> None:
    torch.manual_seed(5)
    kernel = torch.randn(2, 3, 3, 3, 5, dtype=torch.float64)
    skew = skew_kernel(kernel)
    torch.testing.assert_close(skew_kernel(skew), skew)
    impulses = torch.eye(3 * 5 * 6, dtype=torch.float64).reshape(-1, 3, 5, 6)
    for mode in ("circular", "constant"):
        padded = F.pad(impulses, (2, 2, 1, 1), mode=mode)
        for item, whole in zip(skew, kernel, strict=True):
            dense, unprojected = F.conv2d(padded, item).flatten(1), F.conv2d(padded, whole).flatten(1)
            torch.testing.assert_close(dense, (unprojected - unprojected.T) / 2)


@pytest.mark.parametrize("shape", [(2, 3, 3, 3), (3, 3, 2, 3), (3, 3, 3, 4)])
def test_skew_kernel_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match="equal channels and odd sizes"):
        skew_kernel(torch.zeros(shape))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_against_scipy(dtype: torch.dtype) -> None:
    torch.manual_seed(6)
    skew = _random_skew(dtype, 1.0, 2, 3, 6, 6)
    exponential = skew_exponential(skew)
    for item, actual in zip(skew.flatten(0, 1), exponential.flatten(0, 1), strict=True):
        expected = scipy.linalg.expm(item.to(torch.complex128).numpy())
        np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("degree", [3, 4, 7, 8, 11, 12, 15, 16, 19, 20, 24, 28])
def test_exponential_is_the_taylor_polynomial(degree: int) -> None:
    torch.manual_seed(7)
    skew = _random_skew(torch.complex128, 1.5, 5, 5)
    power, expected = torch.eye(5, dtype=skew.dtype), torch.eye(5, dtype=skew.dtype)
    for j in range(1, degree + 1):
        power = power @ skew / j
        expected = expected + power
    actual = skew_exponential(skew, degree)
    torch.testing.assert_close(actual, expected, atol=1e-14, rtol=0)
    assert torch.linalg.matrix_norm(actual, ord=2) <= 1 + 1e-14


def _squared_modulus_minus_one(degree: int) -> list[Fraction]:
    """Exact coefficients of |sum_{j <= degree} (i t)^j / j!|^2 - 1 as a polynomial in t."""
    result = [Fraction(0)] * (2 * degree + 1)
    for parity in (0, 1):
        part = [(j, Fraction((-1) ** (j // 2), math.factorial(j))) for j in range(parity, degree + 1, 2)]
        for j, a in part:
            for k, b in part:
                result[j + k] += a * b
    result[0] -= 1
    return result


def test_contractive_ranges_in_exact_arithmetic() -> None:
    """In floating point the excess of high degrees near 0 would drown in rounding; rational numbers show it."""
    ranges = dict.fromkeys(range(3, 24, 4), 1.6) | {4: 2.8} | dict.fromkeys(range(8, 29, 4), 3.2)
    for degree, limit in ranges.items():
        coefficients = _squared_modulus_minus_one(degree)
        for step in range(1, round(limit * 20) + 1):
            t = Fraction(step, 20)
            assert sum(c * t**j for j, c in enumerate(coefficients) if c) <= 0, (degree, t)
        leading = next(c for c in coefficients if c)
        assert leading < 0  # covers the points between 0 and the first step
    for degree in (5, 6, 9, 10):
        assert next(c for c in _squared_modulus_minus_one(degree) if c) > 0


@pytest.mark.parametrize("degree", [-1, 0, 1, 2, 5, 6, 9, 10, 14])
def test_expansive_degrees_are_refused(degree: int) -> None:
    with pytest.raises(InvalidInputError, match="0 or 3 modulo 4"):
        skew_exponential(torch.zeros(2, 2), degree)


FUNCTIONS: list[Callable[[Tensor], Tensor]] = [
    cayley,
    lambda m: skew_exponential((m[..., :3, :] - m[..., :3, :].mH) / 8, degree=8),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_and_compilation(function: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(8)
    torch._dynamo.reset()
    for dtype in (torch.float64, torch.complex128):
        matrix = torch.randn(2, 5, 3, dtype=dtype, requires_grad=True)
        assert torch.autograd.gradcheck(function, (matrix,))
    actual = torch.compile(function, fullgraph=True, backend="aot_eager")(matrix)
    torch.testing.assert_close(actual, function(matrix))
    actual.abs().sum().backward()


@pytest.mark.parametrize("shape", [(4, 4), (4, 6)])
def test_gradients_square_and_wide(shape: tuple[int, int]) -> None:
    torch.manual_seed(9)
    matrix = torch.randn(2, *shape, dtype=torch.complex128, requires_grad=True)
    assert torch.autograd.gradcheck(cayley, (matrix,))


@pytest.mark.parametrize("shape", [(3, 3), (5, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_cayley_gradient_where_the_norm_is_limited(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    """Above the limit the matrix is scaled down: its length then has no influence, its direction has."""
    torch.manual_seed(10)
    monkeypatch.setattr(orthogonal, "_cayley_limit", lambda matrix: 0.5)
    matrix = torch.randn(shape, dtype=dtype, requires_grad=True)
    assert torch.linalg.matrix_norm(matrix[:3].detach()) > 0.5
    assert torch.autograd.gradcheck(cayley, (matrix,))
    torch.testing.assert_close(cayley(matrix[:3] * 2), cayley(matrix[:3]))


def test_cayley_twice_differentiable() -> None:
    torch.manual_seed(11)
    for shape in ((3, 3), (4, 2)):
        matrix = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradgradcheck(cayley, (matrix,))


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (2, 5), (4, 5), (3, 3)])
def test_rows_of_the_exponential(rows: int, columns: int) -> None:
    top = torch.randn(2, rows, columns, dtype=torch.float64)
    top[..., :rows] -= top[..., :rows].mT.clone()
    whole = torch.zeros(2, columns, columns, dtype=torch.float64)
    whole[..., :rows, :] = top
    whole[..., rows:, :rows] = -top[..., rows:].mT
    scale = torch.linalg.matrix_norm(whole, 2)[..., None, None]
    expected = torch.linalg.matrix_exp(whole / scale)[..., :rows, :]
    torch.testing.assert_close(skew_exponential_rows(top / scale), expected, rtol=0, atol=1e-14)
