"""Products at all frequencies, written into one tensor: autograd would make two more copies of all images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.linalg.fourier import at_zero, product_per_frequency, real_frequencies
from onelip.linalg.tensor_modes import run

PLAIN_LOOPS = 400
"""Multiplications below which `torch.bmm` on CPUs does without its library, by loops that take four times as long."""


def product_in_place(a: Tensor, b: Tensor, bias: Tensor | None, conjugate_a: bool, conjugate_b: bool) -> Tensor:
    """a b, conj(a) b or a conj(b), plus a bias at the frequency 0."""
    return run(_FrequencyProduct, a, b, bias, conjugate_a, conjugate_b)


def _multiply_parts(
    a: Sequence[Tensor], b: Sequence[Tensor], conjugate_a: bool, conjugate_b: bool, y: Sequence[Tensor]
) -> None:
    """y = a b, conj(a) b or a conj(b) for two parts (f, m, n); few rows of both parts of a go together."""
    (a_real, a_imag), (b_real, b_imag), (real, imag) = a, b, y
    sign = 1 if conjugate_a or conjugate_b else -1
    if a_real.shape[1] * b_real.shape[1] * b_real.shape[2] < PLAIN_LOOPS:
        rows = torch.cat([a_real, a_imag], dim=1)
        first, across = torch.bmm(rows, b_real).chunk(2, dim=1)
        there, second = torch.bmm(rows, b_imag).chunk(2, dim=1)
        torch.add(first, second, alpha=sign, out=real)
        plus, minus = (there, across) if conjugate_a else (across, there)
        torch.add(plus, minus, alpha=-sign, out=imag)
        return
    torch.bmm(a_real, b_real, out=real)
    real.baddbmm_(a_imag, b_imag, alpha=sign)
    there, across = (a_real, b_imag), (a_imag, b_real)
    plus, minus = (there, across) if conjugate_a else (across, there)
    torch.bmm(*plus, out=imag)
    imag.baddbmm_(*minus, alpha=-sign)


class _FrequencyProduct(torch.autograd.Function):
    """a b, conj(a) b or a conj(b) for the matrices of all frequencies, in either form, plus a bias at the frequency 0.

    All numbers are written into one tensor: what autograd makes of the definition copies all images twice more.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None, conjugate_a: bool, conjugate_b: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.conjugate = conjugate_a, conjugate_b
        y = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
        if y.dim() == 4:
            a_parts, b_parts, y_parts = a.unbind(), b.unbind(), y.unbind()
        else:
            alone = real_frequencies(len(y))
            sizes = [alone, (len(y) - alone) // 2, (len(y) - alone) // 2]
            split = (values.split_with_sizes(sizes) for values in (a, b, y))
            (a_real, *a_parts), (b_real, *b_parts), (y_real, *y_parts) = split
            torch.bmm(a_real, b_real, out=y_real)
        if len(y_parts[0]):
            _multiply_parts(a_parts, b_parts, conjugate_a, conjugate_b, y_parts)
        if bias is not None:
            at_zero(y).add_(bias)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (a, b), g, (conjugate_a, conjugate_b) = ctx.saved_tensors, gradients[0], ctx.conjugate
        product, to_a, to_b = partial(run, _FrequencyProduct), *ctx.needs_input_grad[:2]
        # The gradient of a b is g b^H for a and a^H g for b; that of conj(a) is the conjugate of that for a.
        return (
            product(g, b.mT, None, conjugate_a, not (conjugate_a or conjugate_b)) if to_a else None,
            product(a.mT, g, None, not (conjugate_a or conjugate_b), conjugate_b) if to_b else None,
            at_zero(g).sum(0) if ctx.needs_input_grad[2] else None,
            None,
            None,
        )


ROWS = (
    Row(
        product_per_frequency,
        product_in_place,
        "all",
        "without it Cayley, LOT and SOC at XS: step 1.07 to 1.09, inference 1.11 to 1.14",
    ),
)
