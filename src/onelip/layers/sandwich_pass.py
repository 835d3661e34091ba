"""The pass of a Sandwich layer by frequency, of which the backward pass keeps the frequencies of the input alone.

y = F^T V F relu(F^T (U X + b)) for the frequencies X = F x of the input. The activation h and its frequencies are
computed anew: one product and two DFTs, where torch's checkpoints would repeat the second product and a part of the
last DFT too. F is an isometry, so that the gradient of F^T is F and that of F is F^T.
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


def sandwich_pass(x: Tensor, inner: Tensor, outer: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    """V relu(U x + b) for frequencies x of images on the torus; the bias is that of the frequency 0."""
    if is_traced() or not torch.is_grad_enabled():
        return _plain(x, inner, outer, bias, torus, dft)
    return _SandwichPass.apply(x, inner, outer, bias, torus, dft)  # pyright: ignore[reportReturnType]


def _hidden(x: Tensor, inner: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    return F.relu(from_frequency(multiply_frequencies(x, inner, bias), torus, dft))


def _plain(x: Tensor, inner: Tensor, outer: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    frequencies = to_frequency(_hidden(x, inner, bias, torus, dft), dft)
    return from_frequency(multiply_frequencies(frequencies, outer), torus, dft)


class _SandwichPass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, outer: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT
    ) -> Tensor:
        ctx.save_for_backward(x, inner, outer, bias, *dft)
        ctx.torus, ctx.autocast = torus, autocast_state(x.device.type)
        return _plain(x, inner, outer, bias, torus, dft)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, inner, outer, bias, *matrices), torus = ctx.saved_tensors, ctx.torus
        dft, wanted = RealDFT(*matrices), ctx.needs_input_grad
        with ctx.autocast():
            if torch.is_grad_enabled():  # a second derivative goes through torch's operations
                y = _plain(x, inner, outer, bias, torus, dft)
                inputs = [tensor for tensor, want in zip((x, inner, outer, bias), wanted, strict=False) if want]
                found = iter(torch.autograd.grad(y, inputs, gradients[0], create_graph=True))
                return *(next(found) if want else None for want in wanted[:4]), None, None
            g = to_frequency(gradients[0], dft)
            hidden = _hidden(x, inner, bias, torus, dft)
            to_outer = matrix_gradient(to_frequency(hidden, dft), g) if wanted[2] else None
            to_hidden = from_frequency(multiply_frequencies(g, outer, adjoint=True), torus, dft)
            del g
            to_product = to_frequency(torch.ops.aten.threshold_backward(to_hidden, hidden, 0), dft)
            del to_hidden, hidden
            return (
                multiply_frequencies(to_product, inner, adjoint=True) if wanted[0] else None,
                matrix_gradient(x, to_product) if wanted[1] else None,
                to_outer,
                sum_at_zero(to_product) if wanted[3] else None,
                None,
                None,
            )
