"""Row sums of the magnitudes of P^T P, for matrices and for the kernels of convolutions, in few products.

P^T P of a convolution has the autocorrelation A_d = sum_t P_t^T P_(t+d) of its taps as its kernel, and A_(-d) = A_d^T:
half of the offsets suffice. AOL wants sum_(d, i) s_i |A_d|_ji. Of all these matrices one byte per entry is kept, its
sign: the gradient of A_d is sign(A_d) (g s^T + s g^T) for the gradient g of the sums.

Taken offset by offset, a 3 x 3 kernel needs 45 products, and 81 for the gradient; `_Short` needs 18 and 32
(`onelip.linalg.autocorrelation_tables`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelip.linalg.autocorrelation_tables import DENOMINATOR, PAIRS, SAME_FACTOR, tables
from onelip.linalg.tensor_modes import is_traced

SHORT_FROM = 96
"""Channels from which the shorter form pays on CPUs: below, its sums cost as much as the products that it saves."""

Offset = tuple[int, int]


def autocorrelation_row_sums(kernel: Tensor, scale: Tensor) -> Tensor:
    """r_j = sum_i s_i sum_d |A_d|_ji of real kernels (..., out, in, kh, kw), divided by s_j before that; s is constant.

    `scale` and the result are (..., in).
    """
    flat, column = kernel.reshape(-1, *kernel.shape[-4:]), scale.reshape(-1, scale.shape[-1])
    if is_traced():
        return _plain_row_sums(flat, column).reshape(scale.shape)
    row_sums: Any = _RowSums.apply(flat, column)
    return row_sums.reshape(scale.shape)


def _taps(kernel: Tensor, scale: Tensor) -> Tensor:
    """The divided kernel as (b, kh, kw, out, in): a window of it is then a matrix (window out) x in."""
    return (kernel / scale[:, None, :, None, None]).permute(0, 3, 4, 1, 2).contiguous()


def _half_of_offsets(height: int, width: int) -> list[Offset]:
    """Zero first, then one of each two opposite ones."""
    return [(dy, dx) for dy in range(height) for dx in range(1 - width if dy else 0, width)]


def _overlap(taps: Tensor, offset: Offset) -> tuple[Tensor, Tensor]:
    """The taps t and t + d, where both are taps: (b, h', w', out, in)."""
    (dy, dx), (height, width) = offset, taps.shape[1:3]
    here = taps[:, : height - dy, max(0, -dx) : width - max(0, dx)]
    return here, taps[:, dy:, max(0, dx) : width + min(0, dx)]


def _plain_row_sums(kernel: Tensor, scale: Tensor) -> Tensor:
    """By operations that torch differentiates."""
    taps, column = _taps(kernel, scale), scale.unsqueeze(-1)
    total = torch.zeros_like(column)
    for offset in _half_of_offsets(*kernel.shape[-2:]):
        here, there = (part.flatten(1, 3) for part in _overlap(taps, offset))
        total = total + _both_sums((here.mT @ there).abs(), column, offset != (0, 0))
    return total.squeeze(-1)


def _both_sums(magnitudes: Tensor, column: Tensor, opposite: bool) -> Tensor:
    """|A| s, and |A^T| s where the opposite offset is another one."""
    sums = magnitudes @ column
    return sums + magnitudes.mT @ column if opposite else sums


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Tensor, scale: Tensor) -> Tensor:
        taps, ways = _taps(kernel, scale), _Short if _has_short_form(kernel) else _ByOffset
        row_sums, signs = ways.forward(taps, scale.unsqueeze(-1))
        ctx.save_for_backward(kernel, scale, signs)
        return row_sums.squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kernel, scale, signs), (gradient,) = ctx.saved_tensors, gradients
        if torch.is_grad_enabled():  # a second derivative goes through torch's operations
            sums = _plain_row_sums(kernel, scale)
            return *torch.autograd.grad(sums, kernel, gradient, create_graph=True), None
        ways = _Short if _has_short_form(kernel) else _ByOffset
        weight = gradient.unsqueeze(-1) * scale.unsqueeze(-2)
        to_taps = ways.gradient(_taps(kernel, scale), signs, weight + weight.mT)
        return to_taps.permute(0, 3, 4, 1, 2).div_(scale[:, None, :, None, None]), None


def _has_short_form(kernel: Tensor) -> bool:
    small = min(kernel.shape[1:3]) < SHORT_FROM
    return kernel.shape[-2:] == (3, 3) and kernel.dtype == torch.float32 and not small


class _ByOffset:
    """One product of the overlapping parts of the kernel per offset, in the precision and for every size of kernel."""

    @staticmethod
    def forward(taps: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """The row sums (b, in, 1), and the signs (b, offsets, in, in)."""
        offsets = _half_of_offsets(*taps.shape[1:3])
        sides = taps.shape[0], len(offsets), taps.shape[-1], taps.shape[-1]
        signs, total = torch.empty(sides, dtype=torch.int8, device=taps.device), torch.zeros_like(column)
        for index, offset in enumerate(offsets):
            here, there = (part.flatten(1, 3) for part in _overlap(taps, offset))
            product = torch.bmm(here.mT, there)
            signs[:, index] = product.sign()
            total += _both_sums(product.abs_(), column, offset != (0, 0))
        return total, signs

    @staticmethod
    def gradient(taps: Tensor, signs: Tensor, weight: Tensor) -> Tensor:
        """That of the taps. For the offset 0 the product is symmetric, and both sides have the same gradient."""
        total = torch.zeros_like(taps)
        for index, offset in enumerate(_half_of_offsets(*taps.shape[1:3])):
            to_product = weight * signs[:, index]
            here, there = (part.flatten(1, 3) for part in _overlap(taps, offset))
            to_here, to_there = _overlap(total, offset)
            to_there += torch.bmm(here, to_product).view(to_there.shape)
            if offset != (0, 0):
                to_here += torch.bmm(there, to_product.mT).view(to_here.shape)
        return total


class _Short:
    """3 x 3 kernels by 18 products, four of them of a matrix with itself, one layer at a time."""

    @staticmethod
    def forward(taps: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """The row sums (b, in, 1), and the signs (b, 13, in, in)."""
        (factor_table, offset_table), width = tables(taps), taps.shape[-1]
        signs = torch.empty(len(taps), len(offset_table), width, width, dtype=torch.int8, device=taps.device)
        total = torch.empty_like(column)
        for layer, each in enumerate(taps):
            same, left, right = _factors(factor_table, each)
            products = taps.new_empty(offset_table.shape[1], width, width)
            torch.bmm(same.mT, same, out=products[: len(same)])
            torch.bmm(left.mT, right, out=products[len(same) : -len(left)])
            products[-len(left) :] = products[len(same) : -len(left)].mT
            found = torch.mm(offset_table, products.flatten(1)).view(-1, width, width)
            signs[layer] = found.sign()
            others = found.abs_()[1:].sum(0)
            total[layer] = (found[0] @ column[layer] + _both_sums(others, column[layer], True)) / DENOMINATOR
        return total, signs

    @staticmethod
    def gradient(taps: Tensor, signs: Tensor, weight: Tensor) -> Tensor:
        """That of the taps: all sums and products of `forward` in reverse."""
        (factor_table, offset_table), width, total = tables(taps), taps.shape[-1], torch.empty_like(taps)
        for layer, each in enumerate(taps):
            same, left, right = _factors(factor_table, each)
            to_found = (weight[layer] / DENOMINATOR) * signs[layer]
            to_found[0] /= 2
            to_products = torch.mm(offset_table.mT, to_found.flatten(1)).view(-1, width, width)
            to_same, to_others, to_back = to_products.split([len(same), len(left), len(left)])
            to_others += to_back.mT
            to_factors = taps.new_empty(len(factor_table), *each.shape[-2:])
            torch.bmm(same, to_same + to_same.mT, out=to_factors[: len(same)])
            torch.bmm(right, to_others.mT, out=to_factors[len(same) : -len(left)])
            torch.bmm(left, to_others, out=to_factors[-len(left) :])
            torch.mm(factor_table.mT, to_factors.flatten(1), out=total[layer].view(len(factor_table.mT), -1))
        return total


def _factors(table: Tensor, taps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Those of both sides, the left and the right ones, each (n, out, in)."""
    factors = torch.mm(table, taps.reshape(table.shape[1], -1)).view(-1, *taps.shape[-2:])
    same, left, right = factors.split([SAME_FACTOR, len(PAIRS) - SAME_FACTOR, len(PAIRS) - SAME_FACTOR])
    return same, left, right
