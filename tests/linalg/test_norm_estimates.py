"""Norms from below: never above the truth, close to it after some steps, with the gradient of the norm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onelip.linalg.fourier import kernel_to_frequency
from onelip.linalg.norm_estimates import estimate_kernel_norm, estimate_matrix_norm
from onelip.linalg.norms import gram_norm_bound

KERNELS = [((6, 4, 3, 3), (8, 8)), ((2, 3, 5, 5, 3), (6, 5)), ((4, 6, 1, 1), (1, 1)), ((2, 2, 3, 4, 1, 3), (1, 16))]


def _norm(matrices: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrices, ord=2)


def _norm_on(kernel: Tensor, torus: tuple[int, int]) -> Tensor:
    return _norm(kernel_to_frequency(kernel, torus)).flatten(-2).amax(-1)


def _start(shape: tuple[int, ...], torus: tuple[int, int]) -> Tensor:
    return torch.randn(*shape[:-4], 2, torus[0], torus[1] // 2 + 1, shape[-3], dtype=torch.float64)


@pytest.mark.parametrize(("shape", "torus"), KERNELS)
def test_kernels_from_below_to_the_norm_and_its_gradient(shape: tuple[int, ...], torus: tuple[int, int]) -> None:
    torch.manual_seed(0)
    kernel = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    exact, vectors = _norm_on(kernel, torus), _start(shape, torus)
    for _ in range(300):
        below, vectors = estimate_kernel_norm(kernel, vectors, torus)
        assert (below <= exact * (1 + 1e-13)).all()
        assert not vectors.requires_grad
    norm, vectors = estimate_kernel_norm(kernel, vectors, torus)
    torch.testing.assert_close(norm, exact)
    torch.testing.assert_close(vectors.square().sum((-4, -1)), torch.ones_like(vectors[..., 0, :, :, 0]))
    (actual,), (expected,) = (torch.autograd.grad(found.sum(), kernel) for found in (norm, exact))
    torch.testing.assert_close(actual, expected)


def test_one_call_is_two_power_iterations() -> None:
    torch.manual_seed(1)
    kernel, vectors = torch.randn(5, 4, 3, 3, dtype=torch.float64), _start((5, 4, 3, 3), (4, 6))
    matrices, v = kernel_to_frequency(kernel, (4, 6)), torch.complex(*vectors)
    for _ in range(2):
        v = (matrices.mH @ (matrices @ v[..., None]))[..., 0]
    v = v / v.abs().square().sum(-1, keepdim=True).sqrt()
    expected = (matrices @ v[..., None]).abs().square().sum((-2, -1)).sqrt().max()
    norm, moved = estimate_kernel_norm(kernel, vectors, (4, 6))
    torch.testing.assert_close(norm, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(moved, torch.stack([v.real, v.imag]), rtol=0, atol=1e-6)


def test_kernels_are_estimated_one_by_one() -> None:
    torch.manual_seed(2)
    kernel, vectors = torch.randn(2, 3, 5, 4, 3, 3), _start((2, 3, 5, 4, 3, 3), (4, 4)).float()
    norm, moved = estimate_kernel_norm(kernel, vectors, (4, 4))
    alone, vector = estimate_kernel_norm(kernel[1, 2], vectors[1, 2], (4, 4))
    torch.testing.assert_close(norm[1, 2], alone)
    torch.testing.assert_close(moved[1, 2], vector)


def test_trap_01_an_estimate_leaves_a_gap_that_the_gram_bound_closes() -> None:
    """After 100 iterations from a fresh vector the estimate is still short: nothing certifies with it."""
    torch.manual_seed(1)
    matrices, vectors = torch.randn(20, 256, 256, dtype=torch.float64), torch.randn(20, 256, dtype=torch.float64)
    exact = _norm(matrices)
    for _ in range(49):
        vectors = estimate_matrix_norm(matrices, vectors)[1]
    estimate, _ = estimate_matrix_norm(matrices, vectors)
    assert (estimate <= exact).all()
    assert (exact / estimate).square().max() > 1.001
    bound = gram_norm_bound(matrices, 12)
    assert (bound >= exact * (1 - 1e-14)).all()
    assert (bound <= exact * 1.001).all()


@pytest.mark.parametrize("shape", [(5, 4), (3, 2, 4, 6)])
def test_matrices_to_the_norm_and_its_gradient(shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    matrix = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    vector = torch.randn(*shape[:-2], shape[-1], dtype=torch.float64)
    for _ in range(300):
        vector = estimate_matrix_norm(matrix, vector)[1]
    norm, _ = estimate_matrix_norm(matrix, vector)
    torch.testing.assert_close(norm, _norm(matrix))
    (actual,), (expected,) = (torch.autograd.grad(found.sum(), matrix) for found in (norm, _norm(matrix)))
    torch.testing.assert_close(actual, expected)


def test_a_vector_survives_a_zero_matrix() -> None:
    """A vector that became zero would stay zero for ever: the old one must be kept."""
    vector = torch.randn(4)
    norm, kept = estimate_matrix_norm(torch.zeros(3, 4), vector)
    assert norm == 0
    torch.testing.assert_close(kept, vector / vector.norm())


@pytest.mark.parametrize("scale", [1e-15, 1e-6, 1e6, 1e15])
def test_weights_of_any_size(scale: float) -> None:
    torch.manual_seed(4)
    base, vector = torch.randn(6, 6), torch.randn(6)
    matrix = (base * scale).requires_grad_()
    for _ in range(100):
        vector = estimate_matrix_norm(matrix, vector)[1]
    norm, _ = estimate_matrix_norm(matrix, vector)
    torch.testing.assert_close(norm / scale, _norm(base), rtol=1e-3, atol=0)
    (gradient,) = torch.autograd.grad(norm, matrix)
    assert gradient.isfinite().all()
    torch.testing.assert_close((gradient * base).sum(), _norm(base), rtol=1e-3, atol=0)
