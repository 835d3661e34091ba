"""The short exponential of training at all frequencies, of which nothing but the kernel is kept.

Real and imaginary parts of the matrices are tensors of their own, stored as layers keep the result, and a few
frequencies are done at a time, so that everything but input and result stays in the cache. Of A = B + i C, B is
antisymmetric and C symmetric, so that A^2 takes two real products in place of four: with M = B C and P = B + C,

    A^2 = -(P^T P + M + M^T) + i (M - M^T).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.fast.table import Row
from onelip.linalg.fourier import Size, has_one_matrix, torus_phases
from onelip.linalg.short_exponential import A, B, C, D, packed_exponentials
from onelip.linalg.tensor_modes import rows_in_use

_NUMBERS_AT_ONCE = 2**18
"""Of the real parts of the matrices that are done at a time: a few such tensors fit the cache of a core."""

_THREE_FROM = 64
"""Channels from which a product of complex matrices takes three real ones: 8 % faster at 64, 16 at 128, 22 at 512."""

Parts = tuple[Tensor, Tensor]


def exponentials_by_parts(kernel: Tensor, torus: Size, outputs: int, inputs: int) -> Tensor:
    """`pack` of p at all frequencies of a torus for a skew kernel (..., c, c, kh, kw), cut to outputs and inputs."""
    lead = kernel.shape[:-4]
    packed: Any = _Exponentials.apply(kernel.reshape(-1, *kernel.shape[-4:]), torus, outputs, inputs)
    packed = packed if has_one_matrix(torus) else packed.unflatten(1, (2, -1))
    return packed.reshape(*lead, *packed.shape[1:])


class _Exponentials(torch.autograd.Function):
    """(layers, numbers, inputs, outputs) of kernels (layers, c, c, kh, kw); nothing but the kernels is kept."""

    @staticmethod
    def forward(ctx: Any, kernel: Tensor, torus: Size, outputs: int, inputs: int) -> Tensor:
        ctx.save_for_backward(kernel)
        ctx.arguments = torus, outputs, inputs
        phases = _Phases(kernel, torus)
        result = kernel.new_empty(len(kernel), phases.numbers, inputs, outputs)
        for taps, packed in zip(_taps(kernel), result, strict=True):
            alone, real, imag = phases.split(packed)
            if len(alone):
                _exponential_of_real((phases.alone @ taps).view(-1, *kernel.shape[1:3]), alone)
            for part in phases.parts(kernel):
                a = phases.matrices(part, taps, kernel.shape[1:3])
                _exponential(a, (real[part], imag[part]))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        ((kernel,), (torus, outputs, inputs), (gradient,)) = ctx.saved_tensors, ctx.arguments, gradients
        if torch.is_grad_enabled():  # a second derivative goes through torch's operations
            value = packed_exponentials.body(kernel, torus, outputs, inputs).reshape(gradient.shape)
            return *torch.autograd.grad(value, kernel, gradient, create_graph=True), None, None, None
        phases, side = _Phases(kernel, torus), kernel.shape[1]
        if (inputs, outputs) != (side, side):
            gradient = F.pad(gradient, (0, side - outputs, 0, side - inputs))
        result = []
        for taps, packed in zip(_taps(kernel), gradient, strict=True):
            alone, real, imag = phases.split(packed)
            total = torch.zeros_like(taps)
            if len(alone):
                found = _gradient_of_real((phases.alone @ taps).view(-1, side, side), alone)
                total.addmm_(phases.alone.mT, found.flatten(1))
            for part in phases.parts(kernel):
                a = phases.matrices(part, taps, kernel.shape[1:3])
                to_real, to_imag = _gradient(a, (real[part], imag[part]))
                total.addmm_(phases.real[part].mT, to_real.flatten(1))
                total.addmm_(phases.imag[part].mT, to_imag.flatten(1))
            result.append(total.view(*kernel.shape[-2:], side, side).permute(3, 2, 0, 1))
        return torch.stack(result), None, None, None


class _Phases:
    """Phases (frequencies, taps) of the real matrices of a torus, and of both parts of the others."""

    def __init__(self, kernel: Tensor, torus: Size) -> None:
        cos, sin = torus_phases(torus, kernel)
        self.numbers = len(cos) + len(sin)
        self.alone, self.real = cos.split([len(cos) - len(sin), len(sin)])
        self.imag = sin

    def split(self, packed: Tensor) -> list[Tensor]:
        """The numbers of all frequencies, in the same three parts."""
        return list(packed.split([len(self.alone), len(self.real), len(self.imag)]))

    def parts(self, kernel: Tensor) -> Iterator[slice]:
        """The complex matrices that are done at a time."""
        step = max(1, _NUMBERS_AT_ONCE // kernel[0, ..., 0, 0].numel())
        return (slice(start, start + step) for start in range(0, len(self.imag), step))

    def matrices(self, part: slice, taps: Tensor, shape: torch.Size) -> Parts:
        """Their transposes, as layers keep them."""
        return (self.real[part] @ taps).view(-1, *shape), (self.imag[part] @ taps).view(-1, *shape)


def _taps(kernel: Tensor) -> Tensor:
    """(layers, taps, in * out): the transposed matrices are sums of these with phases. A transpose is skew too."""
    return kernel.permute(0, 3, 4, 2, 1).flatten(3).flatten(1, 2)


def _add_to_diagonal(matrix: Tensor, number: float) -> Tensor:
    matrix.diagonal(dim1=-2, dim2=-1).add_(number)
    return matrix


def _square(a: Parts) -> Parts:
    """A^2, which is Hermitian."""
    mixed, both = torch.bmm(*a), a[0] + a[1]
    transposed = mixed.mT.contiguous()
    real = torch.bmm(both.mT, both).add_(mixed).add_(transposed).neg_()
    return real, mixed.sub_(transposed)


def _factor(a: Parts, square: Parts, c: float) -> Parts:
    """a I + b A^2 + c A."""
    real, imag = (torch.mul(s, B).add_(x, alpha=c) for s, x in zip(square, a, strict=True))
    return _add_to_diagonal(real, A), imag


def _product(left: Parts, right: Parts, out: Parts | None = None) -> Parts:
    """Of complex matrices, by their parts: from `_THREE_FROM` columns on, three products and five sums."""
    real = torch.bmm(left[0], right[0]) if out is None else torch.bmm(left[0], right[0], out=out[0])
    factors = (left[0], right[1])
    if three := left[0].shape[-1] >= _THREE_FROM:  # (l0 + l1)(r0 + r1) - l0 r0 - l1 r1 = l0 r1 + l1 r0
        factors = left[0] + left[1], right[0] + right[1]
    imag = torch.bmm(*factors) if out is None else torch.bmm(*factors, out=out[1])
    if not three:
        return real.baddbmm_(left[1], right[1], alpha=-1), imag.baddbmm_(left[1], right[0])
    last = torch.bmm(left[1], right[1])
    imag.sub_(real).sub_(last)
    return real.sub_(last), imag


def _exponential(a: Parts, out: Parts) -> None:
    """p(A), cut to the shape of what it is written to."""
    rows, columns = out[0].shape[-2:]
    square = _square(a)
    factor = _factor(a, square, C)
    left, right = (square[0][:, :rows], square[1][:, :rows]), (factor[0][..., :columns], factor[1][..., :columns])
    _product(left, right, out)
    for part, matrix in zip(out, a, strict=True):
        part.add_(matrix[:, :rows, :columns], alpha=D)
    _add_to_diagonal(out[0], 1)


def _gradient(a: Parts, g: Parts) -> Parts:
    """Gradient of A, up to a Hermitian part, for the gradient G of p(A) = I + d A + S R with S = A^2.

    S is Hermitian: the gradients are S G for R and T = G R^H + b S G for S. That of A^2 is A^H T + T A^H, of which the
    Hermitian part H of T has the skew part, -A H + (A H)^H.
    """
    square = _square(a)
    to_factor = _product(square, g)
    real, imag = _product(g, _factor(a, square, -C))  # R^H: the other sign of A
    real.add_(to_factor[0], alpha=B)
    imag.add_(to_factor[1], alpha=B)
    twice_hermitian = real + real.mT, imag - imag.mT
    product = _product(a, twice_hermitian, (real, imag))
    found = [s.mul_(C).add_(x, alpha=D).sub_(y) for s, x, y in zip(to_factor, g, product, strict=True)]
    return found[0], found[1]


def _exponential_of_real(a: Tensor, out: Tensor) -> None:
    """`_exponential` for real A."""
    rows, columns = out.shape[-2:]
    square = torch.bmm(a, a)
    factor = _add_to_diagonal(torch.mul(square, B).add_(a, alpha=C), A)
    torch.bmm(square[:, :rows], factor[..., :columns], out=out)
    _add_to_diagonal(out.add_(a[:, :rows, :columns], alpha=D), 1)


def _gradient_of_real(a: Tensor, g: Tensor) -> Tensor:
    """`_gradient` for real A."""
    if len(a) == 1 and (columns := rows_in_use(g[0].mT)) is not None:
        return _gradient_of_columns(a[0], g[0][:, columns], columns).unsqueeze(0)
    square = torch.bmm(a, a)
    to_factor = torch.bmm(square, g)
    to_square = torch.bmm(g, _add_to_diagonal(square.mul_(B).sub_(a, alpha=C), A)).add_(to_factor, alpha=B)
    del square  # before the last temporary
    return to_factor.mul_(C).add_(g, alpha=D).baddbmm_(a, to_square + to_square.mT, alpha=-1)


def _gradient_of_columns(a: Tensor, g: Tensor, columns: Tensor) -> Tensor:
    """`_gradient_of_real` for one matrix and a G with few columns that are not zero: no product of squares."""
    own = a[:, columns]
    factor = (a @ own).mul_(B).add_(own, alpha=C)
    factor[columns, torch.arange(len(columns))] += A
    image = a @ g
    to_factor = a @ image
    left, right = torch.cat([image, a @ factor, B * own], dim=1), torch.cat([factor, g, to_factor], dim=1)
    result = torch.mm(left, right.mT).neg_()
    result[:, columns] += D * g + C * to_factor - B * (a @ to_factor)
    return result


ROWS = (
    Row(
        packed_exponentials,
        exponentials_by_parts,
        "cpu",
        "without it SOC: step 1.25, memory 1.73 (XS), 1.96 (S)",
    ),
)
