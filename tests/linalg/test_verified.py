"""Results of linear algebra routines are checked: wrong ones are replaced, and nothing wrong gets through."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from onelip.errors import UnreliableRoutineError
from onelip.linalg.orthogonal import cayley
from onelip.linalg.polar import polar_factor
from onelip.linalg.triangular import ridge_orthogonalise
from onelip.linalg.verified import cholesky, eigenvectors, inverse, orthonormal_columns, solve

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def regular(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Matrices of condition number below 3."""
    matrix = torch.randn(*shape, dtype=dtype)
    return torch.eye(shape[-1], dtype=dtype) + 0.5 * matrix / torch.linalg.matrix_norm(matrix, 2)[..., None, None]


def break_batches(monkeypatch: pytest.MonkeyPatch, name: str, error: float | None, single: bool = False) -> None:
    """A routine of torch.linalg that raises, or is off by a relative error, for batches or always."""
    routine = getattr(torch.linalg, name)

    def broken(*arguments: Tensor, **options: Any) -> Any:
        result = routine(*arguments, **options)
        if arguments[0].dim() == 2 and not single:
            return result
        if error is None:
            raise RuntimeError("Pivots given to lu_solve must all be greater or equal to 1")
        parts = list(result) if isinstance(result, tuple) else [result]
        parts[-1 if name == "eigh" else 0][..., 0, :] *= 1 + error
        return type(result)(parts) if isinstance(result, tuple) else parts[0]

    monkeypatch.setattr(torch.linalg, name, broken)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_those_of_torch(dtype: torch.dtype) -> None:
    matrix, right = regular(3, 20, 20, dtype=dtype), torch.randn(3, 20, 7, dtype=dtype)
    torch.testing.assert_close(solve(matrix, right), torch.linalg.solve(matrix, right))
    torch.testing.assert_close(inverse(matrix), torch.linalg.inv(matrix))
    gram = matrix.mH @ matrix
    torch.testing.assert_close(cholesky(gram), torch.linalg.cholesky(gram))
    values, vectors = eigenvectors(gram)
    torch.testing.assert_close((vectors * values.unsqueeze(-2)) @ vectors.mH, gram)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("error", [None, 0.01])
def test_what_fails_for_batches_is_done_one_by_one(
    dtype: torch.dtype, error: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, right = regular(2, 3, 12, 12, dtype=dtype), torch.randn(2, 3, 12, 5, dtype=dtype)
    gram = matrix.mH @ matrix
    for name in ("solve", "inv", "eigh", "cholesky_ex"):
        break_batches(monkeypatch, name, error)
    torch.testing.assert_close(matrix @ solve(matrix, right), right)
    torch.testing.assert_close(matrix @ inverse(matrix), torch.eye(12, dtype=dtype).expand_as(matrix))
    factor = cholesky(gram)
    torch.testing.assert_close(factor @ factor.mH, gram)
    values, vectors = eigenvectors(gram)
    torch.testing.assert_close((vectors * values.unsqueeze(-2)) @ vectors.mH, gram)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("error", [None, 0.01])
def test_orthonormal_columns_are_verified(
    dtype: torch.dtype, error: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bases that are not orthonormal or span another space are made again, one by one; equal columns and zeros pass."""
    tall = torch.randn(2, 3, 12, 5, dtype=dtype) / 4
    tall[0, 0, :, 1] = tall[0, 0, :, 0]
    tall[1, 1] = 0
    break_batches(monkeypatch, "qr", error)
    basis = orthonormal_columns(tall)
    torch.testing.assert_close(basis.mH @ basis, torch.eye(5, dtype=dtype).expand(2, 3, 5, 5))
    torch.testing.assert_close(basis @ (basis.mH @ tall), tall)
    break_batches(monkeypatch, "qr", 0.01, single=True)
    with pytest.raises(UnreliableRoutineError, match="qr"):
        orthonormal_columns(tall)


def test_reflections_solve_where_no_elimination_does(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, right = regular(2, 9, 9), torch.randn(2, 9, 4, dtype=torch.float64)
    for name in ("solve", "inv"):
        break_batches(monkeypatch, name, None, single=True)
    torch.testing.assert_close(matrix @ solve(matrix, right), right)
    torch.testing.assert_close(matrix @ inverse(1e9 * matrix) * 1e9, torch.eye(9).double().expand(2, 9, 9))


def test_nothing_that_verifies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("solve", "inv", "qr", "eigh"):
        break_batches(monkeypatch, name, 0.01, single=True)
    matrix = regular(2, 9, 9)
    with pytest.raises(UnreliableRoutineError, match="OMP_NUM_THREADS"):
        solve(matrix, matrix)
    with pytest.raises(UnreliableRoutineError, match="inverse"):
        inverse(matrix)
    with pytest.raises(UnreliableRoutineError, match="eigh"):
        eigenvectors(matrix @ matrix.mT)


def test_where_nothing_can_be_tried_again_the_result_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = regular(3, 9, 9)
    torch.testing.assert_close(torch.func.vmap(solve)(matrix, matrix), torch.eye(9).double().expand(3, 9, 9))
    break_batches(monkeypatch, "solve", 0.01, single=True)
    assert torch.func.vmap(solve)(matrix, matrix).isnan().all()


def test_numbers_that_are_not_finite_pass_through() -> None:
    matrix = regular(2, 4, 4)
    matrix[0, 1, 2] = torch.nan
    assert solve(matrix, matrix).isnan().any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients_of_what_was_repaired(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.randn(2, 4, 3, dtype=dtype, requires_grad=True)
    for name in ("inv", "eigh", "cholesky_ex"):
        break_batches(monkeypatch, name, 0.01)
    assert torch.autograd.gradcheck(cayley, (matrix,))
    assert torch.autograd.gradcheck(ridge_orthogonalise, (matrix,))
    assert torch.autograd.gradcheck(polar_factor, (matrix,))


THREADS = """
import torch
from onelip.layers import create_conv
from onelip.linalg.orthogonal import cayley
torch.set_num_threads(2)
for dtype in (torch.float32, torch.complex64):
    weight = torch.randn(3, 160, 160, dtype=dtype).div_(10).requires_grad_()
    isometry = cayley(weight)
    (isometry.abs() * torch.rand(160, 160)).sum().backward()
    error = (isometry.mH @ isometry - torch.eye(160)).abs().max()
    assert error < 1e-3, (dtype, error)
    assert weight.grad.isfinite().all()
layer = create_conv("sandwich", 160, 160, 3)
with torch.no_grad():
    layer.weight.add_(torch.randn_like(layer.weight) / 10)
assert layer.eval().lipschitz_bound((2, 2)) < 1 + 1e-5
"""


def test_solves_hold_after_set_num_threads() -> None:
    """In a process of its own: on some machines the batched LU factorisation breaks in all of what follows."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    process = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, env=environment, check=False
    )
    assert process.returncode == 0, process.stderr
