"""Spectral rescaling against its definition, and against exact norms."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from jacobians import circular_norm

from onelip.linalg.rescaling import aol_kernel_scale, aol_scale
from onelip.linalg.spectral_rescaling import kernel_rescaling, rescaling


def test_one_step_is_aol() -> None:
    matrix = torch.randn(2, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(rescaling(matrix, 1), aol_scale(matrix))
    kernel = torch.randn(2, 5, 4, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(kernel_rescaling(kernel, 1), aol_kernel_scale(kernel))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_matrices_by_the_definition(steps: int) -> None:
    matrix = torch.randn(6, 4, dtype=torch.float64)
    power = torch.linalg.matrix_power(matrix.mT @ matrix, 2 ** (steps - 1))
    torch.testing.assert_close(rescaling(matrix, steps), power.abs().sum(1) ** -(0.5**steps))


@pytest.mark.parametrize("side", [1, 3, 5])
def test_kernels_by_the_definition(side: int) -> None:
    """Two steps: the kernel correlated with itself, and the result once more, on all offsets of the plane."""
    kernel = torch.randn(3, 2, side, side, dtype=torch.float64)
    for steps in (1, 2):
        gram = kernel
        for _ in range(steps):
            images = gram.transpose(0, 1)
            gram = F.conv2d(images, images, padding=gram.shape[-1] - 1)
        expected = gram.abs().sum((1, 2, 3)) ** -(0.5**steps)
        torch.testing.assert_close(kernel_rescaling(kernel, steps), expected)


def test_norms_rise_with_the_steps_and_stay_below_one() -> None:
    kernel = torch.randn(16, 16, 3, 3, dtype=torch.float64)
    norms = [
        float(circular_norm(kernel * kernel_rescaling(kernel, steps)[:, None, None], (16, 16)))
        for steps in (1, 2, 3, 6)
    ]
    assert norms[:3] == pytest.approx([0.5, 0.73, 0.87], abs=0.06)
    assert norms[2] < norms[3] <= 1 + 1e-12


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-12, 1e12, 1e30])
def test_every_scale_in_float32(scale: float) -> None:
    kernel = (torch.randn(4, 4, 3, 3) * scale).requires_grad_()
    rescaled = kernel * kernel_rescaling(kernel, 4)[:, None, None]
    assert rescaled.isfinite().all()
    assert circular_norm(rescaled.detach().double(), (8, 8)) <= 1 + 1e-5
    (rescaled * torch.randn_like(rescaled)).sum().backward()
    assert kernel.grad is not None
    assert kernel.grad.isfinite().all()


def test_columns_of_unequal_sizes() -> None:
    matrix = torch.randn(6, 4) * torch.tensor([1.0, 1e-4, 1e-12, 0.0])
    for steps in (2, 5):
        rescaled = (matrix * rescaling(matrix, steps)).double()
        assert torch.linalg.matrix_norm(rescaled, 2) <= 1 + 1e-5
        assert not rescaled[:, 3].any()


def test_derivatives() -> None:
    kernel = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda k: kernel_rescaling(k, 3), (kernel,))
    matrix = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m: rescaling(m, 2), (matrix,))
