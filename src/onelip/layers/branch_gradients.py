"""Passes by frequency with an activation inside, and their gradients: the branch of a residual layer, and Sandwich.

With the DFT F and the frequencies X = F x of the input, the activation is h = relu(F^T (U X + b)). F is an isometry, so
that the gradient of F^T is F and that of F is F^T.

The branch W^T relu(W x + b) of a residual layer is F^T W^H F h with U = W, and Sandwich is y = F^T V F h.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.linalg.definition import Definition
from onelip.linalg.fourier import (
    RealDFT,
    Size,
    from_frequency,
    matrix_gradient,
    multiply_frequencies,
    sum_at_zero,
    to_frequency,
)


def hidden_image(x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    """relu(W x + b) for frequencies x."""
    return F.relu(from_frequency(multiply_frequencies(x, matrices, bias), torus, dft))


def differentiable(
    y: Tensor, tensors: Sequence[Tensor | None], wanted: Sequence[bool], gradient: Tensor
) -> list[Tensor | None]:
    """Gradients of y for the tensors that want one, which can be differentiated again."""
    inputs = [tensor for tensor, want in zip(tensors, wanted, strict=True) if want and tensor is not None]
    found = iter(torch.autograd.grad(y, inputs, gradient, create_graph=True))
    return [next(found) if want else None for want in wanted]


@Definition
def residual_branch(x: Tensor, matrices: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    """W^T relu(W x + b) for frequencies x of images on the torus; the bias is that of the frequency 0."""
    return transposed(hidden_image(x, matrices, bias, torus, dft), matrices, torus, dft)


def transposed(hidden: Tensor, matrices: Tensor, torus: Size, dft: RealDFT) -> Tensor:
    """W^T h."""
    return from_frequency(multiply_frequencies(to_frequency(hidden, dft), matrices, adjoint=True), torus, dft)


@Definition
def sandwich_pass(x: Tensor, inner: Tensor, outer: Tensor, bias: Tensor | None, torus: Size, dft: RealDFT) -> Tensor:
    """V relu(U x + b) for frequencies x of images on the torus; the bias is that of the frequency 0."""
    frequencies = to_frequency(hidden_image(x, inner, bias, torus, dft), dft)
    return from_frequency(multiply_frequencies(frequencies, outer), torus, dft)


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
    """Gradients of x, U, V and b, where they are wanted, given that of the image y."""
    g = to_frequency(gradient, dft)
    hidden = hidden_image(x, inner, bias, torus, dft)
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
