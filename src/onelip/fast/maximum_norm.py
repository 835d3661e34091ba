"""The largest magnitude by one kernel, for which accelerators have one. On CPUs it takes twenty times as long."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onelip.fast.table import Row
from onelip.linalg.norms import largest_entry


def maximum_norm(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """max |x| over these dimensions."""
    return torch.linalg.vector_norm(values, ord=math.inf, dim=dims)


ROWS = (Row(largest_entry, maximum_norm, "accelerator", "one kernel in place of four"),)
"""Largest magnitudes are taken several times in every transformation: to divide by."""
