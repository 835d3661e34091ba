"""Units of roundoff, and the error of an inner product in terms of them."""

from __future__ import annotations

import math

import torch

UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}

SAFETY = 1 + 2.0**-33
"""Factor that covers the rounding of the bounds' own scalar arithmetic: (1 + u)^n <= SAFETY for n <= 2^20."""


def gamma(terms: int, unit_roundoff: float = UNIT_ROUNDOFF[torch.float64]) -> float:
    """gamma_n = n u / (1 - n u), the relative error of an inner product of n terms; infinite where n u >= 1."""
    product = terms * unit_roundoff
    return product / (1 - product) * SAFETY if product < 1 else math.inf
