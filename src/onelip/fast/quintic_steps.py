"""Steps of the polar iteration of which one matrix is kept, a third of what autograd keeps, at as many products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.linalg.minimax import Quintic
from onelip.linalg.polar import quintic_step


class _StepThatKeepsOne(torch.autograd.Function):
    """a X + X (b G + c G^2) with G = X^H X.

    With P = b G + c G^2, the gradient g, S = X^H g + g^H X and T = S G: dX = a g + g P + X (b S + c (T + T^H)).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, quintic: Quintic) -> Tensor:
        ctx.save_for_backward(x)
        ctx.quintic = quintic
        return quintic_step.body(x, quintic)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,), (gradient,), (a, b, c) = ctx.saved_tensors, gradients, ctx.quintic
        gram = torch.bmm(x.mH, x)
        total = torch.baddbmm(gradient, gradient, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), beta=a)
        inner = torch.bmm(x.mH, gradient)
        inner = inner + inner.mH
        product = torch.bmm(inner, gram)
        return torch.baddbmm(total, x, b * inner + c * (product + product.mH)), None


ROWS = (
    Row(
        quintic_step,
        _StepThatKeepsOne.apply,
        "all",
        "accelerators: training memory without it 1.24 (BCOP, M), 1.28 (LOT, M), 1.27 (ECO, XS)",
        lambda *_: torch.is_grad_enabled(),
    ),
)
