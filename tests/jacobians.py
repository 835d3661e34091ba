"""Ground truth for the layer tests: exact Jacobians of small layers and what follows from them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def jacobian(layer: nn.Module, x: Tensor) -> Tensor:
    """Exact Jacobian (outputs, inputs) at one input (without batch dimension), in one backward pass."""
    outputs = layer(x[None]).numel()
    copies = x.expand(outputs, *x.shape).clone().requires_grad_()
    diagonal = layer(copies).flatten(1).diagonal()
    (gradient,) = torch.autograd.grad(diagonal.sum(), copies)
    return gradient.flatten(1)


def norm_at(layer: nn.Module, x: Tensor) -> float:
    """Largest singular value of the Jacobian at x, computed in float64."""
    return float(torch.linalg.matrix_norm(jacobian(layer, x).double(), 2))


def distance_from_isometry(matrix: Tensor) -> float:
    """max |J^T J - I|."""
    gram = matrix.mT @ matrix
    return float((gram - torch.eye(len(gram), dtype=gram.dtype)).abs().max())


def circular_norm(kernel: Tensor, size: tuple[int, int]) -> Tensor:
    """Exact norm of the circular convolution with kernel (..., out, in, kh, kw) on the h x w torus, shape (...).

    The largest singular value of its frequency matrices. Kernels larger than the torus wrap around it.
    """
    torus = kernel.new_zeros(*kernel.shape[:-2], *size)
    for row in range(kernel.shape[-2]):
        for column in range(kernel.shape[-1]):
            torus[..., row % size[0], column % size[1]] += kernel[..., row, column]
    return torch.linalg.matrix_norm(torch.fft.fft2(torus).movedim((-4, -3), (-2, -1)), 2).amax((-2, -1))
