"""Scaling by powers of two, so that squares neither overflow nor underflow: exact, whatever the size of the numbers.

Denormal numbers are the exception. A processor that flushes them (`torch.set_flush_denormal`) reads them as zeros, each
off by less than the smallest normal number of the type: `Scaled.unseen` bounds the norm of all that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_BITS = {8: (torch.int64, 52, 11), 4: (torch.int32, 23, 8)}
"""Integers of the same length, digits of the mantissa and of the exponent, by bytes."""

_SMALL = 2.0**-1000
_SMALLEST_SUM = 2.0**-1020


class Scaled(NamedTuple):
    """A tensor as `tensor` * 2^exponent in float64, its largest entry in [1/2, 1), or as zeros.

    The Frobenius norm of what is missing in that is at most `unseen`.
    """

    tensor: Tensor
    exponent: int
    unseen: float

    def restored(self, bound: float) -> float:
        """Upper bound of a norm from one of the scaled tensor: rounded upwards, infinite where it overflows."""
        try:
            result = math.ldexp(bound, self.exponent)
        except OverflowError:
            return math.inf
        return result + self.unseen + (_SMALLEST_SUM if bound > 0 and result < _SMALL else 0.0)


def scaled(tensor: Tensor) -> Scaled | None:
    """A real tensor of any floating type, scaled; None where an entry is not finite."""
    exponent = largest_exponent(tensor)
    return None if exponent is None else Scaled(scale(tensor, exponent), exponent, denormal_norm(tensor))


def largest_exponent(tensor: Tensor) -> int | None:
    """e with 2^(e - 1) <= largest magnitude < 2^e, 0 for zeros, None where an entry is not finite."""
    if not tensor.numel():
        return 0
    low, high = (float(value) for value in torch.aminmax(tensor.detach()))
    largest = max(-low, high)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    return math.frexp(largest)[1] if largest else 0


def scale(tensor: Tensor, exponent: int) -> Tensor:
    """tensor * 2^-exponent in float64, by two factors: one alone may be out of range."""
    half = exponent // 2
    return tensor.detach().double() * math.ldexp(1.0, -half) * math.ldexp(1.0, half - exponent)


def denormal_norm(tensor: Tensor) -> float:
    """Bound of the norm of all denormal entries; 0 where there are none, as a rule."""
    tensor = tensor.detach()
    # The bits of shorter types are those of a float32; few of their denormal numbers stay so.
    tensor = tensor.float() if tensor.element_size() < 4 else tensor
    return math.sqrt(tensor.numel()) * 2 * torch.finfo(tensor.dtype).tiny if _has_denormals(tensor) else 0.0


def _has_denormals(tensor: Tensor) -> bool:
    """By their bits: comparisons would read flushed ones as zeros."""
    integers, mantissa, exponent = _BITS[tensor.element_size()]
    for part in tensor.reshape(-1).split(2**22):
        bits = part.contiguous().view(integers)
        no_exponent = (bits >> mantissa) & (2**exponent - 1) == 0
        if bool((no_exponent & (bits & (2**mantissa - 1) != 0)).any()):
            return True
    return False
