"""Passes by frequency with an activation inside, and their gradients: the branch of a residual layer, and Sandwich.

With the DFT F and the frequencies X = F x of the input, the activation is h = relu(F^T (U X + b)). F is an isometry, so
that the gradient of F^T is F and that of F is F^T.

The branch W^T relu(W x + b) of a residual layer is F^T W^H F h with U = W. For its gradient g, let G = F g,
u = D F^T W G with D the slopes of relu, and P = F u. The gradients are W^H P for X, P X^H + F h G^H for W, and P at the
frequency 0 for b. Kept are X and, for small images, h; torch would keep F h too. Larger ones, see `keeps_activation`,
are most of the memory of a network: there h is computed anew, one product and one DFT more than six and nine.

Sandwich is y = F^T V F h and keeps X alone. The activation and its frequencies are computed anew: one product and two
DFTs, where torch's checkpoints would repeat the second product and a part of the last DFT too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.layers.convolution import keeps_activation
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


def _hidden(x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    return F.relu(from_frequency(multiply_frequencies(x, matrices, bias), torus, dft))


def differentiable(
    y: Tensor, tensors: Sequence[Tensor | None], wanted: Sequence[bool], gradient: Tensor
) -> list[Tensor | None]:
    """Gradients of y for the tensors that want one, which can be differentiated again."""
    inputs = [tensor for tensor, want in zip(tensors, wanted, strict=True) if want and tensor is not None]
    found = iter(torch.autograd.grad(y, inputs, gradient, create_graph=True))
    return [next(found) if want else None for want in wanted]


def residual_branch(x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    """W^T relu(W x + b) for frequencies x of images on the torus; the bias is that of the frequency 0."""
    if is_traced() or not torch.is_grad_enabled():
        return _plain_branch(x, matrices, bias, torus, dft)
    return _ResidualBranch.apply(x, matrices, bias, torus, dft)  # pyright: ignore[reportReturnType]


def _back(hidden: Tensor, matrices: Tensor, torus: Size, dft: RealDFT) -> Tensor:
    return from_frequency(multiply_frequencies(to_frequency(hidden, dft), matrices, adjoint=True), torus, dft)


def _plain_branch(x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    return _back(_hidden(x, matrices, bias, torus, dft), matrices, torus, dft)


class _ResidualBranch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
        hidden = _hidden(x, matrices, bias, torus, dft)
        ctx.save_for_backward(x, matrices, bias, hidden if keeps_activation(torus) else None, *dft)
        ctx.torus, ctx.autocast = torus, autocast_state(x.device.type)
        return _back(hidden, matrices, torus, dft)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, matrices, bias, hidden, *parts), torus, wanted = ctx.saved_tensors, ctx.torus, ctx.needs_input_grad
        dft = RealDFT(*parts)
        with ctx.autocast():
            if torch.is_grad_enabled():  # a second derivative goes through torch's operations
                y = _plain_branch(x, matrices, bias, torus, dft)
                return *differentiable(y, (x, matrices, bias), wanted[:3], gradients[0]), None, None
            hidden = _hidden(x, matrices, bias, torus, dft) if hidden is None else hidden
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


def sandwich_pass(x: Tensor, inner: Tensor, outer: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    """V relu(U x + b) for frequencies x of images on the torus; the bias is that of the frequency 0."""
    if is_traced() or not torch.is_grad_enabled():
        return plain_sandwich(x, inner, outer, bias, torus, dft)
    return _SandwichPass.apply(x, inner, outer, bias, torus, dft)  # pyright: ignore[reportReturnType]


def plain_sandwich(x: Tensor, inner: Tensor, outer: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    """The same by operations that torch differentiates."""
    frequencies = to_frequency(_hidden(x, inner, bias, torus, dft), dft)
    return from_frequency(multiply_frequencies(frequencies, outer), torus, dft)


class _SandwichPass(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, outer: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT
    ) -> Tensor:
        ctx.save_for_backward(x, inner, outer, bias, *dft)
        ctx.torus, ctx.autocast = torus, autocast_state(x.device.type)
        return plain_sandwich(x, inner, outer, bias, torus, dft)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, inner, outer, bias, *matrices), torus = ctx.saved_tensors, ctx.torus
        dft, wanted = RealDFT(*matrices), ctx.needs_input_grad
        with ctx.autocast():
            if torch.is_grad_enabled():  # a second derivative goes through torch's operations
                y = plain_sandwich(x, inner, outer, bias, torus, dft)
                return *differentiable(y, (x, inner, outer, bias), wanted[:4], gradients[0]), None, None
            return *sandwich_gradients(x, inner, outer, bias, torus, dft, gradients[0], wanted[:4]), None, None


def sandwich_gradients(
    x: Tensor,
    inner: Tensor,
    outer: Tensor,
    bias: Tensor | None,
    torus: Size,
    dft: RealDFT,
    gradient: Tensor,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Those of x, U, V and b that are wanted, given that of the image y."""
    g = to_frequency(gradient, dft)
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
    )
