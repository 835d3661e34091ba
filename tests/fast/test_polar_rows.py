"""First rows of a polar factor against the factor itself in float64."""

import pytest
import torch
from torch import Tensor

from onelip.fast import polar_rows as module
from onelip.linalg.polar import polar_factor, polar_rows

ROWS = 3


def _orthogonal(side: int) -> Tensor:
    return torch.linalg.qr(torch.randn(side, side, dtype=torch.float64)).Q


def _matrix(kind: str, side: int = 128) -> Tensor:
    torch.manual_seed(0)
    if kind == "identity":
        return torch.eye(side)
    if kind == "some rows moved":  # the steps from the others end at once
        matrix = torch.eye(side)
        matrix[:2] += 0.3 * torch.randn(2, side) / side**0.5
        return matrix
    if kind == "low rank":
        return (_orthogonal(side) + 30 * torch.randn(side, 2).double() @ torch.randn(2, side).double() / side).float()
    if kind == "tiny":
        return 1e-20 * (_orthogonal(side) + 0.1 * torch.randn(side, side) / side**0.5).float()
    assert kind == "near"
    return (_orthogonal(side) + 0.1 * torch.randn(side, side) / side**0.5).float()


def _rows_and_gradient(matrix: Tensor, cotangent: Tensor, factor: object) -> tuple[Tensor, Tensor]:
    leaf = matrix.clone().requires_grad_()
    rows = factor(leaf)  # type: ignore[operator]
    return rows.detach(), torch.autograd.grad(rows, leaf, cotangent.to(matrix.dtype))[0]


@pytest.mark.parametrize("kind", ["identity", "some rows moved", "low rank", "near", "tiny"])
def test_rows_and_gradient_are_those_of_the_whole_factor(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = _matrix(kind)
    cotangent = torch.randn(ROWS, len(matrix))
    double = matrix.double() / matrix.abs().max()  # the factor does not see the scale, its gradient divides by it
    expected, gradient = _rows_and_gradient(double, cotangent, lambda leaf: polar_factor(leaf)[:ROWS])
    monkeypatch.setattr(module, "eigen_factor", None)  # no fall back to all eigenvectors
    rows, found = _rows_and_gradient(matrix, cotangent, lambda leaf: polar_rows(leaf, ROWS))
    assert torch.linalg.matrix_norm(rows - expected, 2) < 5e-6
    assert (found * matrix.abs().max() - gradient).norm() < 1e-4 * gradient.norm()


@pytest.mark.parametrize("kind", ["spread", "zero", "not finite"])
def test_what_does_not_converge_gets_all_eigenvectors(kind: str) -> None:
    torch.manual_seed(1)
    matrix = {
        "spread": (_orthogonal(128) * torch.linspace(0.03, 1, 128)).float() @ _orthogonal(128).float(),
        "zero": torch.zeros(128, 128),
        "not finite": torch.eye(128),
    }[kind]
    cotangent = torch.randn(ROWS, 128)
    if kind == "not finite":
        cotangent[0, 0] = torch.nan
    whole = lambda leaf: polar_factor(leaf, iteration="single")[:ROWS]  # noqa: E731
    expected, gradient = _rows_and_gradient(matrix, cotangent, whole)
    rows, found = _rows_and_gradient(matrix, cotangent, lambda leaf: polar_rows(leaf, ROWS))
    torch.testing.assert_close(rows, expected, rtol=0, atol=1e-5)
    assert found.isnan().any() == gradient.isnan().any()
    if kind == "spread":
        assert (found - gradient).norm() < 1e-3 * gradient.norm()


def test_rows_are_orthonormal_however_few_steps_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOKED_AT", (2, 3, 4))
    monkeypatch.setattr(module, "_TOLERANCE", 1.0)
    rows = polar_rows(_matrix("near") @ _matrix("low rank"), ROWS)
    torch.testing.assert_close(rows @ rows.mT, torch.eye(ROWS), rtol=0, atol=1e-5)


def test_it_can_be_differentiated_twice() -> None:
    matrix = _matrix("near").requires_grad_()
    (first,) = torch.autograd.grad(polar_rows(matrix, ROWS).square().sum(), matrix, create_graph=True)
    assert torch.autograd.grad(first.square().sum(), matrix)[0].isfinite().all()


def test_all_eigenvectors_are_taken_once_for_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    taken, take = [], module.eigen_factor
    monkeypatch.setattr(module, "eigen_factor", lambda *given, **named: taken.append(0) or take(*given, **named))
    matrix = ((_orthogonal(128) * torch.linspace(0.03, 1, 128)) @ _orthogonal(128)).float()
    _rows_and_gradient(matrix, torch.randn(ROWS, 128), lambda leaf: polar_rows(leaf, ROWS))
    assert len(taken) == 1


def test_wide_matrices_get_more_steps() -> None:
    """Adam spreads the singular values of a last layer until 20 steps do not suffice."""
    torch.manual_seed(0)
    matrix = _orthogonal(1024) * torch.linspace(1, 5, 1024) @ _orthogonal(1024)
    found = module._krylov(matrix, torch.eye(10, 1024, dtype=torch.float64))
    assert found is not None
    assert len(found.basis) == 24 * 10
