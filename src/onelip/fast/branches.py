"""Passes by frequency with an activation inside, of which little is kept; `onelip.layers.branch_gradients` has both.

For the gradient g of the branch F^T W^H F h of a residual layer, let G = F g, u = D F^T W G with D the slopes of relu,
and P = F u. The gradients are W^H P for X, P X^H + F h G^H for W, and P at the frequency 0 for b. Kept are X and, for
small images, h; torch would keep F h too. Larger ones, see `keeps_activation`, are most of the memory of a network:
there h is computed anew, one product and one DFT more than six and nine.

Sandwich keeps X alone. The activation and its frequencies are computed anew: one product and two DFTs, where torch's
checkpoints would repeat the second product and a part of the last DFT too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelip.fast.channels_last import keeps_activation
from onelip.fast.table import Row
from onelip.layers.branch_gradients import (
    differentiable,
    hidden_image,
    residual_branch,
    sandwich_gradients,
    sandwich_pass,
    transposed,
)
from onelip.linalg.fourier import (
    RealDFT,
    Size,
    from_frequency,
    matrix_gradient,
    multiply_frequencies,
    sum_at_zero,
    to_frequency,
)
from onelip.linalg.tensor_modes import autocast_state


class _BranchThatKeepsLittle(torch.autograd.Function):
    """W^T relu(W x + b)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
        hidden = hidden_image(x, matrices, bias, torus, dft)
        ctx.save_for_backward(x, matrices, bias, hidden if keeps_activation(torus) else None, *dft)
        ctx.torus, ctx.autocast = torus, autocast_state(x.device.type)
        return transposed(hidden, matrices, torus, dft)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, matrices, bias, hidden, *parts), torus, wanted = ctx.saved_tensors, ctx.torus, ctx.needs_input_grad
        dft = RealDFT(*parts)
        with ctx.autocast():
            if torch.is_grad_enabled():  # a second derivative goes through torch's operations
                y = residual_branch.body(x, matrices, bias, torus, dft)
                return *differentiable(y, (x, matrices, bias), wanted[:3], gradients[0]), None, None
            hidden = hidden_image(x, matrices, bias, torus, dft) if hidden is None else hidden
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


class _SandwichThatKeepsLittle(torch.autograd.Function):
    """V relu(U x + b)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, outer: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT
    ) -> Tensor:
        ctx.save_for_backward(x, inner, outer, bias, *dft)
        ctx.torus, ctx.autocast = torus, autocast_state(x.device.type)
        return sandwich_pass.body(x, inner, outer, bias, torus, dft).detach()  # no view, which none may write to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, inner, outer, bias, *matrices), torus = ctx.saved_tensors, ctx.torus
        dft, wanted = RealDFT(*matrices), ctx.needs_input_grad
        with ctx.autocast():
            if torch.is_grad_enabled():  # a second derivative goes through torch's operations
                y = sandwich_pass.body(x, inner, outer, bias, torus, dft)
                return *differentiable(y, (x, inner, outer, bias), wanted[:4], gradients[0]), None, None
            return *sandwich_gradients(x, inner, outer, bias, torus, dft, gradients[0], wanted[:4]), None, None


def _differentiates(*_: Any) -> bool:
    return torch.is_grad_enabled()


ROWS = (
    Row(
        residual_branch,
        _BranchThatKeepsLittle.apply,
        "all",
        "keeps two images of three: memory without it 1.10 (SLL, XS)",
        _differentiates,
    ),
    Row(
        sandwich_pass,
        _SandwichThatKeepsLittle.apply,
        "all",
        "keeps one image of three: memory without it 1.34 (Sandwich, XS)",
        _differentiates,
    ),
)
