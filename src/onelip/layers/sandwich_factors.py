"""The two matrices of a Sandwich layer, V = sqrt(2) A^H and U = sqrt(2) B, and wide layers, which keep one of them.

At all frequencies V and U of a layer are 2 h w c^2 numbers, where its kernel has 2 k^2 c^2: for a wide network they are
half as much as its images. With the lower block W_2 of the kernel's matrix, U^H = -W_2 (V + sqrt(2) I): one product
makes U again. `WideSandwich` keeps V alone, and its gradients go on to the kernel at once, so that those of one
layer exist at a time. A few frequencies are done at a time, so that temporary tensors stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onelip.layers.branch_gradients import differentiable, sandwich_gradients, sandwich_pass
from onelip.layers.operators import TrainingOperator, at_frequency_zero, check_size, embedded
from onelip.linalg.fourier import (
    Blocks,
    Matrices,
    RealDFT,
    Size,
    has_one_matrix,
    packed_values,
    real_dft,
    split_whole,
    to_frequency,
    torus_blocks,
)
from onelip.linalg.orthogonal import cayley, gradient_of_blocks, lower_block
from onelip.linalg.tensor_modes import autocast_state, no_autocast
from onelip.linalg.xla_forms import complex_matrix

BYTES_AT_ONCE = 2**23
"""Of the matrices of a kernel whose V and U, or whose gradients, are computed at a time."""


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

    Gradients go to the kernel from `apply`.
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
            outer, inner = _both(torus_blocks(kernel, torus), torus, factors)
        return cls(kernel, outer, inner, torus, image, factors)

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Two convolutions in the frequency domain, the activation on the torus between them."""
        check_size(x, self.image)
        dft = real_dft(self.torus, self.kernel.dtype, self.kernel.device)
        y: Any = _WideSandwich.apply(
            to_frequency(embedded(x, self.torus), dft),
            self.kernel,
            at_frequency_zero(bias, self.torus),
            self.outer,
            self.inner,
            self.factors,
            self.torus,
            dft,
        )
        return y[..., : x.shape[-2], : x.shape[-1]]


class _WideSandwich(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: Tensor,
        bias: Tensor | None,
        outer: Tensor,
        inner: Tensor,
        factors: SandwichFactors,
        torus: Size,
        dft: RealDFT,
    ) -> Tensor:
        ctx.save_for_backward(x, kernel, bias, outer, *dft)
        ctx.factors, ctx.torus, ctx.autocast = factors, torus, autocast_state(x.device.type)
        return sandwich_pass.body(x, inner, outer, bias, torus, dft).detach()  # no view, which none may write to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (x, kernel, bias, outer, *parts), wanted, factors = ctx.saved_tensors, ctx.needs_input_grad, ctx.factors
        torus, dft, device = ctx.torus, RealDFT(*parts), x.device.type
        if torch.is_grad_enabled():  # a second derivative goes through torch's operations
            with no_autocast(device):
                outer, inner = packed_values.body(kernel, torus, factors)
            with ctx.autocast():
                y = sandwich_pass.body(x, inner, outer, bias, torus, dft)
                return *differentiable(y, (x, kernel, bias), wanted[:3], gradients[0]), *[None] * 5
        with no_autocast(device), torch.enable_grad():
            leaf = kernel.detach().requires_grad_()
            of_leaf = torus_blocks(leaf, torus)
        blocks = tuple(block.detach() for block in of_leaf)
        with no_autocast(device):
            inner = _inner(blocks, outer, torus, factors)
        with ctx.autocast():
            each = wanted[0], wanted[1], wanted[1], wanted[2]
            found = sandwich_gradients(x, inner, outer, bias, torus, dft, gradients[0], each)
        to_x, to_inner, to_outer, to_bias = found
        to_kernel = None
        if to_inner is not None and to_outer is not None:
            with no_autocast(device):
                to_blocks = _to_blocks(blocks, torus, factors, (outer, to_outer.to(outer), to_inner.to(outer)))
                (to_kernel,) = torch.autograd.grad(of_leaf, leaf, to_blocks)
        return to_x, to_kernel, to_bias, *[None] * 5


def _both(blocks: Blocks, torus: Size, factors: SandwichFactors) -> Matrices:
    """V and U of all frequencies, packed."""
    outputs = factors.outputs
    both = tuple(_new_packed(blocks[0], torus, inputs) for inputs in (outputs, blocks[0].shape[-2] - outputs))
    for block, part in _parts(blocks):
        for packed, values in zip(both, factors(blocks[block][part]), strict=True):
            _write(_place(packed, torus, block, part), values)
    return both


def _inner(blocks: Blocks, outer: Tensor, torus: Size, factors: SandwichFactors) -> Tensor:
    """U again."""
    inner = _new_packed(blocks[0], torus, blocks[0].shape[-2] - factors.outputs)
    for block, part in _parts(blocks):
        own = _read(_place(outer, torus, block, part))
        _write(_place(inner, torus, block, part), factors.inner(blocks[block][part], own))
    return inner


def _to_blocks(blocks: Blocks, torus: Size, factors: SandwichFactors, packed: Matrices) -> Blocks:
    """The gradients of the blocks, given V and the gradients of V and U."""
    found = tuple(map(torch.empty_like, blocks))
    for block, part in _parts(blocks):
        outer, *gradients = (_read(_place(each, torus, block, part)) for each in packed)
        found[block][part] = factors.gradient(blocks[block][part], (outer,), tuple(gradients))
    return found


def _parts(blocks: Blocks) -> Iterator[tuple[int, slice]]:
    """The frequencies that are done at a time: the number of a block, and their places in it."""
    for number, block in enumerate(blocks):
        step = max(1, BYTES_AT_ONCE // block[0].nbytes)
        yield from ((number, slice(start, start + step)) for start in range(0, len(block), step))


def _new_packed(block: Tensor, torus: Size, inputs: int) -> Tensor:
    """Room for what `pack` makes of matrices (f, out, in) at all frequencies; `block` is the first of their blocks."""
    frequencies = (torus[0] * torus[1],) if has_one_matrix(torus) else (2, len(block))
    return torch.empty(*frequencies, inputs, block.shape[-1], dtype=block.real.dtype, device=block.device)


def _place(packed: Tensor, torus: Size, block: int, part: slice) -> Tensor:
    """Where some frequencies of a block are in a packed tensor: (f, in, out), or both parts (2, f, in, out)."""
    return (split_whole(packed)[block] if has_one_matrix(torus) else packed)[..., part, :, :]


def _read(packed: Tensor) -> Tensor:
    """The matrices (f, out, in) at such a place."""
    return (packed if packed.dim() == 3 else complex_matrix(packed[0], packed[1])).mT


def _write(packed: Tensor, matrices: Tensor) -> None:
    """The inverse."""
    if packed.dim() == 3:
        packed.copy_(matrices.mT)
    else:
        packed[0].copy_(matrices.real.mT)
        packed[1].copy_(matrices.imag.mT)
