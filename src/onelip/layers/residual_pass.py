"""The branch W^T relu(W x + b) of a residual layer by frequency, with its gradients.

With the DFT F, an isometry, and X = F x, the branch is F^T W^H F h with h = relu(F^T (W X + b)). For its gradient g,
let G = F g, u = D F^T W G with D the slopes of relu, and P = F u. The gradients are W^H P for X, P X^H + F h G^H for W,
and P at the frequency 0 for b. Kept are X and h; torch would keep F h too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.linalg.fourier import (
    RealDFT,
    Size,
    from_frequency,
    matrix_gradient,
    multiply_frequencies,
    sum_at_zero,
    to_frequency,
)
from onelip.linalg.tensor_modes import autocast_state, is_traced


def residual_branch(x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    """W^T relu(W x + b) for frequencies x of images on the torus; the bias is that of the frequency 0."""
    if is_traced() or not torch.is_grad_enabled():
        return _plain(x, matrices, bias, torus, dft)
    return _ResidualBranch.apply(x, matrices, bias, torus, dft)  # pyright: ignore[reportReturnType]


def _hidden(x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    return F.relu(from_frequency(multiply_frequencies(x, matrices, bias), torus, dft))


def _back(hidden: Tensor, matrices: Tensor, torus: Size, dft: RealDFT) -> Tensor:
    return from_frequency(multiply_frequencies(to_frequency(hidden, dft), matrices, adjoint=True), torus, dft)


def _plain(x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    return _back(_hidden(x, matrices, bias, torus, dft), matrices, torus, dft)


class _ResidualBranch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
        hidden = _hidden(x, matrices, bias, torus, dft)
        ctx.save_for_backward(x, matrices, bias, hidden, *dft)
        ctx.torus, ctx.autocast = torus, autocast_state(x.device.type)
        return _back(hidden, matrices, torus, dft)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, matrices, bias, hidden, *parts), torus, wanted = ctx.saved_tensors, ctx.torus, ctx.needs_input_grad
        dft = RealDFT(*parts)
        with ctx.autocast():
            if torch.is_grad_enabled():  # a second derivative goes through torch's operations
                y = _plain(x, matrices, bias, torus, dft)
                inputs = [tensor for tensor, want in zip((x, matrices, bias), wanted, strict=False) if want]
                found = iter(torch.autograd.grad(y, inputs, gradients[0], create_graph=True))
                return *(next(found) if want else None for want in wanted[:3]), None, None
            g = to_frequency(gradients[0], dft)
            slope = torch.ops.aten.threshold_backward
            inner = slope(from_frequency(multiply_frequencies(g, matrices), torus, dft), hidden, 0)
            inner = to_frequency(inner, dft)
            to_matrices = None
            if wanted[1]:
                to_matrices = matrix_gradient(x, inner).add_(matrix_gradient(g, to_frequency(hidden, dft)))
            return (
                multiply_frequencies(inner, matrices, adjoint=True) if wanted[0] else None,
                to_matrices,
                sum_at_zero(inner) if wanted[2] else None,
                None,
                None,
            )
