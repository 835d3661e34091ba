"""Orthonormal bases of column spaces."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onelip.linalg.subspace import subspace_basis


def projection(matrix: Tensor) -> Tensor:
    basis = subspace_basis(matrix)
    return basis @ basis.mH


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_projection_onto_the_columns(dtype: torch.dtype) -> None:
    matrix = torch.randn(3, 7, 4, dtype=dtype)
    expected = matrix @ torch.linalg.pinv(matrix)
    torch.testing.assert_close(projection(matrix), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_first_and_second_derivatives(dtype: torch.dtype) -> None:
    matrix = torch.randn(4, 2, dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(projection, (matrix,))
    assert torch.autograd.gradgradcheck(projection, (matrix,))


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_the_scale_does_not_matter(scale: float) -> None:
    matrix = torch.randn(6, 3)
    torch.testing.assert_close(projection(matrix * scale), projection(matrix), rtol=0, atol=1e-5)


def test_gradients_of_dependent_columns_are_finite() -> None:
    column = torch.randn(6, 1)
    for matrix in (torch.zeros(6, 3), column.expand(6, 3).clone(), torch.cat([column, torch.zeros(6, 2)], 1)):
        matrix.requires_grad_()
        (projection(matrix) * torch.randn(6, 6)).sum().backward()
        assert matrix.grad is not None
        assert matrix.grad.isfinite().all()
