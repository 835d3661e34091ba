"""Orthogonalisation by a Cholesky factor with a ridge."""

from __future__ import annotations

import pytest
import torch

from onelip.linalg import triangular
from onelip.linalg.norms import scale_below_one
from onelip.linalg.triangular import ridge, ridge_orthogonalise


@pytest.mark.parametrize("shape", [(5, 5), (3, 6), (6, 3)])
def test_singular_values_are_those_of_the_formula(shape: tuple[int, int]) -> None:
    matrix = torch.randn(2, *shape, dtype=torch.complex128)
    values = torch.linalg.svdvals(scale_below_one(matrix))
    expected = values / (values.square() + ridge(matrix)).sqrt()
    torch.testing.assert_close(torch.linalg.svdvals(ridge_orthogonalise(matrix)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_first_derivatives(shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrix = torch.randn(2, *shape, dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(ridge_orthogonalise, (matrix,))


def test_second_derivatives() -> None:
    matrix = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(ridge_orthogonalise, (matrix,))


def test_float32_computes_the_same_function() -> None:
    """The ridge is a part of the layer: training in float32 and evaluation in float64 must not differ by it."""
    nearly_singular = torch.diag(torch.tensor([1.0, 0.5, 1e-3, 1e-4]))
    matrix = torch.linalg.qr(torch.randn(4, 4)).Q @ nearly_singular @ torch.linalg.qr(torch.randn(4, 4)).Q
    narrow, wide = ridge_orthogonalise(matrix), ridge_orthogonalise(matrix.double())
    torch.testing.assert_close(narrow.double(), wide, rtol=0, atol=0.02)
    assert torch.linalg.matrix_norm(narrow.double(), 2) <= 1 + 1e-6


def test_singular_and_zero_matrices_stay_finite() -> None:
    for matrix in (torch.zeros(4, 4), torch.ones(4, 4), torch.ones(2, 5)):
        matrix.requires_grad_()
        result = ridge_orthogonalise(matrix)
        (result * torch.randn_like(result)).sum().backward()
        assert matrix.grad is not None
        assert matrix.grad.isfinite().all()
        assert torch.linalg.matrix_norm(result.detach().double(), 2) <= 1 + 1e-6


@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 3, 5)])
def test_compilers_get_the_same_as_one_operator(shape: tuple[int, ...]) -> None:
    """Forward and backward pass, fake tensors and autograd of the operator that inductor does not look into."""
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.complex128, requires_grad=True)
    eps = triangular.ridge(matrix)
    torch.library.opcheck(triangular._opaque_quotient, (matrix, eps))
    direction = torch.randn(shape, dtype=torch.complex128)
    results = [
        (quotient, *torch.autograd.grad(quotient, matrix, direction))
        for quotient in (
            triangular._opaque_quotient(matrix, eps)[0],
            triangular._TriangularQuotient.apply(matrix, eps)[0],  # pyright: ignore
        )
    ]
    torch.testing.assert_close(*results)
