"""What accelerators do in fewer kernels: they wait for the host between small ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.linalg.constants import cached_constant
from onelip.linalg.norms import largest_entry, real_parts
from onelip.linalg.orthogonal import SUMS, sums_of_powers


def maximum_norm(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """max |x| over these dimensions, for which there is one kernel. On CPUs it takes twenty times as long."""
    return torch.linalg.vector_norm(values, ord=math.inf, dim=dims)


def sums_by_one_product(a: Tensor, square: Tensor, fourth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three sums, of matrices (f, n, n)."""

    def make(device: torch.device) -> Tensor:
        return torch.tensor(SUMS, dtype=a.real.dtype, device=device)

    powers = real_parts(torch.stack([a, square, fourth])).flatten(1)
    table = cached_constant(("sums of powers", powers.dtype), powers.device, make)
    sums = torch.mm(table, powers).view(3, *a.shape, -1)
    low, left, right = (torch.view_as_complex(x) if a.is_complex() else x[..., 0] for x in sums)
    return low, left, right


ROWS = (
    Row(largest_entry, maximum_norm, "accelerator", "launches of a forward pass without it: 1.04 to 1.14 (XS)"),
    Row(sums_of_powers, sums_by_one_product, "accelerator", "launches of a forward pass without it: 1.05 (SOC, XS)"),
)
