"""AOL's row sums: by one convolution, or in few products of which one byte per entry is kept for the backward pass.

Of all matrices A_d the sign is kept: the gradient of A_d is sign(A_d) (g s^T + s g^T) for the gradient g of the sums.
Taken offset by offset, a 3 x 3 kernel needs 45 products, and 81 for the gradient; `_Short` needs 18 and 32
(`onelip.fast.autocorrelation_tables`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onelip.fast.autocorrelation_tables import DENOMINATOR, PAIRS, SAME_FACTOR, tables
from onelip.fast.table import Row
from onelip.linalg.devices import is_cpu
from onelip.linalg.rescaling import autocorrelation_row_sums, both_sums, half_of_offsets, overlap, taps_of

SHORT_FROM = 96
"""Channels from which the shorter form pays on CPUs: below, its sums cost as much as the products that it saves."""


CONVOLUTION_UP_TO = 64 * 64
"""Outputs times inputs up to which one convolution is faster on CPUs than many small products; measured for 3 x 3
kernels, forward and backward: 1.3 against 2.4 ms for 32 channels, 3.5 ms both for 64, 123 against 55 ms for 256."""


def by_convolution(kernel: Tensor, scale: Tensor) -> Tensor:
    """The row sums from all offsets at once: the divided kernel convolved with itself, one group for each layer."""
    groups, outputs, inputs, height, width = kernel.shape
    scaled = kernel / scale[:, None, :, None, None]
    channels_first = scaled.transpose(-4, -3).reshape(-1, outputs, height, width)
    images = channels_first.unflatten(0, (groups, inputs)).transpose(0, 1).flatten(1, 2)
    correlation = F.conv2d(images, channels_first, padding=(height - 1, width - 1), groups=groups)
    magnitudes = correlation.abs().sum((-2, -1)).unflatten(1, (groups, inputs)).transpose(0, 1)
    return torch.bmm(magnitudes, scale.unsqueeze(-1)).squeeze(-1)


def _is_small(kernel: Tensor, scale: Tensor) -> bool:
    """Of more than one tap, and of few channels; accelerators take the convolution for all."""
    small = kernel.shape[1] * kernel.shape[2] <= CONVOLUTION_UP_TO or not is_cpu(kernel.device)
    return small and kernel[0, 0, 0].numel() > 1


class _SignsAlone(torch.autograd.Function):
    """The row sums, of which the signs of the autocorrelation are kept."""

    @staticmethod
    def forward(ctx: Any, kernel: Tensor, scale: Tensor) -> Tensor:
        taps, ways = taps_of(kernel, scale), _Short if _has_short_form(kernel) else _ByOffset
        row_sums, signs = ways.forward(taps, scale.unsqueeze(-1))
        ctx.save_for_backward(kernel, scale, signs)
        return row_sums.squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kernel, scale, signs), (gradient,) = ctx.saved_tensors, gradients
        if torch.is_grad_enabled():  # a second derivative goes through torch's operations
            sums = autocorrelation_row_sums.body(kernel, scale)
            return *torch.autograd.grad(sums, kernel, gradient, create_graph=True), None
        ways = _Short if _has_short_form(kernel) else _ByOffset
        weight = gradient.unsqueeze(-1) * scale.unsqueeze(-2)
        to_taps = ways.gradient(taps_of(kernel, scale), signs, weight + weight.mT)
        return to_taps.permute(0, 3, 4, 1, 2).div_(scale[:, None, :, None, None]), None


def _has_short_form(kernel: Tensor) -> bool:
    small = min(kernel.shape[1:3]) < SHORT_FROM
    return kernel.shape[-2:] == (3, 3) and kernel.dtype == torch.float32 and not small


class _ByOffset:
    """One product of the overlapping parts of the kernel per offset, in the precision and for every size of kernel."""

    @staticmethod
    def forward(taps: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """The row sums (b, in, 1), and the signs (b, offsets, in, in)."""
        offsets = half_of_offsets(*taps.shape[1:3])
        sides = taps.shape[0], len(offsets), taps.shape[-1], taps.shape[-1]
        signs, total = torch.empty(sides, dtype=torch.int8, device=taps.device), torch.zeros_like(column)
        for index, offset in enumerate(offsets):
            here, there = (part.flatten(1, 3) for part in overlap(taps, offset))
            product = torch.bmm(here.mT, there)
            signs[:, index] = product.sign()
            total += both_sums(product.abs_(), column, offset != (0, 0))
        return total, signs

    @staticmethod
    def gradient(taps: Tensor, signs: Tensor, weight: Tensor) -> Tensor:
        """Gradient of the taps. For the offset 0 the product is symmetric, and both sides have the same gradient."""
        total = torch.zeros_like(taps)
        for index, offset in enumerate(half_of_offsets(*taps.shape[1:3])):
            to_product = weight * signs[:, index]
            here, there = (part.flatten(1, 3) for part in overlap(taps, offset))
            to_here, to_there = overlap(total, offset)
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
            total[layer] = (found[0] @ column[layer] + both_sums(others, column[layer], True)) / DENOMINATOR
        return total, signs

    @staticmethod
    def gradient(taps: Tensor, signs: Tensor, weight: Tensor) -> Tensor:
        """Gradient of the taps: all sums and products of `forward` in reverse."""
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
    """Factors of both sides, left and right ones, each (n, out, in)."""
    factors = torch.mm(table, taps.reshape(table.shape[1], -1)).view(-1, *taps.shape[-2:])
    same, left, right = factors.split([SAME_FACTOR, len(PAIRS) - SAME_FACTOR, len(PAIRS) - SAME_FACTOR])
    return same, left, right


ROWS = (
    Row(
        autocorrelation_row_sums,
        by_convolution,
        "all",
        "without it at XS: launches of accelerators 2.09 (AOL), 1.6 (SLL, Bjorck); a CPU's scale of 32 channels 1.8",
        _is_small,
    ),
    Row(
        autocorrelation_row_sums,
        _SignsAlone.apply,
        "all",
        "without it AOL: step 1.15, memory 1.20 (XS), 1.31 (S)",
    ),
)
