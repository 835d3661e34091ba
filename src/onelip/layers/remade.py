"""Wide layers by frequency as accelerators train them: their matrices are made anew in the backward pass, not kept.

The matrices M^(f) of a convolution are h (w / 2 + 1) c^2 complex numbers, where its kernel is k^2 c^2 real ones, and
what autograd keeps of a function that constrains them is several times that: for a wide layer more than all images.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from onelip.layers.operators import Operator, TrainingOperator
from onelip.linalg.fourier import Size, half_width
from onelip.linalg.tensor_modes import no_autocast, wants_plain_operations

MOST_BYTES_KEPT = 2**22
"""Of complex matrices of one layer that are kept. Narrower layers are transformed together, by as few kernels as
possible."""


def keeps_no_matrices(channels: Size, bytes_of_number: int, torus: Size) -> bool:
    """Whether the frequency matrices of one layer with so many channels out and in are too many to be kept."""
    count = torus[0] * half_width(torus[1]) * channels[0] * channels[1]
    return not wants_plain_operations() and 2 * count * bytes_of_number > MOST_BYTES_KEPT


@dataclass(frozen=True)
class Remade(TrainingOperator):
    """The operator that `make` makes of a kernel, in the forward and again in the backward pass of each input."""

    kernel: Tensor
    make: Callable[[Tensor], Operator]

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """In float32 or better; the backward pass takes the forms of the forward pass."""
        function = copy_context().run
        if not torch.is_grad_enabled():
            return function(self._applied, x, self.kernel, bias)
        y: Any = checkpoint(
            function, self._applied, x, self.kernel, bias, use_reentrant=False, preserve_rng_state=False
        )
        return y

    def _applied(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        kernel = kernel.float() if kernel.dtype in (torch.float16, torch.bfloat16) else kernel
        with no_autocast(x.device.type):
            return self.make(kernel).apply(x.to(kernel.dtype), bias)
