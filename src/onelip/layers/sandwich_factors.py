"""The two matrices of a Sandwich layer, V = sqrt(2) A^H and U = sqrt(2) B, and wide layers, which keep one of them.

At all frequencies V and U of a layer are 2 h w c^2 numbers, where its kernel has 2 k^2 c^2: for a wide network they are
half as much as its images (training at M takes 1.77 times the memory of the plain network with both, 1.5 with one).
With the lower block W_2 of the kernel's matrix, U^H = -W_2 (V + sqrt(2) I): one product makes U again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelip.layers.branch_gradients import differentiable, sandwich_gradients, sandwich_pass
from onelip.layers.operators import TrainingOperator, at_frequency_zero, check_size, embedded
from onelip.linalg.fourier import (
    Matrices,
    RealDFT,
    Size,
    pack,
    packed_values,
    real_dft,
    to_frequency,
    torus_blocks,
    unpack,
)
from onelip.linalg.orthogonal import cayley, gradient_of_blocks, lower_block
from onelip.linalg.tensor_modes import autocast_state, no_autocast


def factors(weight: Tensor, outputs: int, psi: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """sqrt(2) A^H (out x out) and sqrt(2) B (out x in) from an unconstrained (..., out + in, out) matrix.

    With a psi (..., out), which the published layers have: sqrt(2) A^H Psi and sqrt(2) Psi^(-1) B.
    """
    isometry = math.sqrt(2) * cayley(weight)
    outer, inner = isometry[..., :outputs, :], isometry[..., outputs:, :].mH
    if psi is None:
        return outer, inner
    psi = psi.reshape(*psi.shape[:-1], *[1] * (weight.dim() - psi.dim()), outputs)
    return outer * psi.exp(), inner * (-psi).exp().mT


class SandwichFactors:
    """`factors` without psi, both read from what the layers keep."""

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs

    def __call__(self, matrix: Tensor) -> Matrices:
        """Both factors."""
        return factors(matrix, self.outputs)

    def gradient(self, matrix: Tensor, values: Matrices, gradients: Matrices) -> Tensor:
        """The gradient of the isometry whose blocks times sqrt(2) the factors are; the first value is all it reads."""
        found = gradient_of_blocks(matrix, values[0] / math.sqrt(2), gradients[0], gradients[1].mH)
        return found.mul_(math.sqrt(2))

    def inner(self, matrix: Tensor, outer: Tensor) -> Tensor:
        """The second value, given the first."""
        return lower_block(matrix, outer / math.sqrt(2)).mul_(math.sqrt(2)).mH


@dataclass(frozen=True)
class WideSandwich(TrainingOperator):
    """x -> V relu(U x + b) in training on CPUs, with V = `outer` and U = `inner`, outside autograd, and their kernel.

    Gradients go on to the kernel at once, so that those of V and U exist for one layer at a time.
    """

    kernel: Tensor
    outer: Tensor
    inner: Tensor
    torus: Size
    image: Size
    factors: SandwichFactors

    @classmethod
    def of_kernel(cls, kernel: Tensor, torus: Size, image: Size, factors: SandwichFactors) -> WideSandwich:
        """With the matrices that `factors` makes of those of the kernel."""
        with torch.no_grad():
            outer, inner = packed_values.body(kernel, torus, factors)
        return cls(kernel, outer, inner, torus, image, factors)

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Two convolutions in the frequency domain, the activation on the torus between them."""
        check_size(x, self.image)
        dft = real_dft(self.torus, self.kernel.dtype, self.kernel.device)
        frequencies, constant = to_frequency(embedded(x, self.torus), dft), at_frequency_zero(bias, self.torus)
        matrices = self.kernel, self.outer, self.inner
        y: Any = _WideSandwich.apply(frequencies, *matrices, constant, self.factors, self.torus, dft)
        return y[..., : x.shape[-2], : x.shape[-1]]


class _WideSandwich(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: Tensor,
        outer: Tensor,
        inner: Tensor,
        bias: Tensor | None,
        factors: SandwichFactors,
        torus: Size,
        dft: RealDFT,
    ) -> Tensor:
        ctx.save_for_backward(x, kernel, bias, outer, *dft)
        ctx.factors, ctx.torus, ctx.autocast = factors, torus, autocast_state(x.device.type)
        return sandwich_pass.body(x, inner, outer, bias, torus, dft).detach()  # no view, which none may write to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, kernel, bias, outer, *parts), factors = ctx.saved_tensors, ctx.factors
        wanted = *ctx.needs_input_grad[:2], ctx.needs_input_grad[4]
        torus, dft, device = ctx.torus, RealDFT(*parts), x.device.type
        if torch.is_grad_enabled():  # a second derivative goes through torch's operations
            with no_autocast(device):
                outer, inner = packed_values.body(kernel, torus, factors)
            with ctx.autocast():
                y = sandwich_pass.body(x, inner, outer, bias, torus, dft)
                to_x, to_kernel, to_bias = differentiable(y, (x, kernel, bias), wanted, gradients[0])
                return to_x, to_kernel, None, None, to_bias, None, None, None
        with no_autocast(device), torch.enable_grad():
            leaf = kernel.detach().requires_grad_()
            blocks = torus_blocks(leaf, torus)
        pairs = list(zip((block.detach() for block in blocks), unpack(outer, torus), strict=True))
        with no_autocast(device):
            inner = pack(tuple(factors.inner(*pair) for pair in pairs))
        with ctx.autocast():
            each = wanted[0], wanted[1], wanted[1], wanted[2]
            found = sandwich_gradients(x, inner, outer, bias, torus, dft, gradients[0], each)
        to_x, to_inner, to_outer, to_bias = found
        del inner, found
        to_kernel = None
        if to_inner is not None and to_outer is not None:
            with no_autocast(device):
                both = zip(unpack(to_outer.to(outer), torus), unpack(to_inner.to(outer), torus), strict=True)
                to_blocks = [factors.gradient(block, (v,), g) for (block, v), g in zip(pairs, both, strict=True)]
                (to_kernel,) = torch.autograd.grad(blocks, leaf, to_blocks)
        return to_x, to_kernel, None, None, to_bias, None, None, None
