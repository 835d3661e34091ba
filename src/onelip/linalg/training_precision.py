"""Whether training may transform parameters less exactly than evaluation does.

In training every step makes new transformed parameters, and certificates are made of those of evaluation: float32 and
short polynomials are enough there. What that changes is in each method's `MethodInfo.training_error`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from onelip.linalg.device_forms import suits_cpu

_EXACT: ContextVar[bool] = ContextVar("exact_transforms", default=False)


def may_approximate(training: bool) -> bool:
    """Whether a layer in this mode takes the approximations of training. Compilers do not follow context variables."""
    return training and (torch.compiler.is_compiling() or not _EXACT.get())


@contextmanager
def exact_transforms() -> Iterator[None]:
    """Layers in training transform their parameters as exactly as in evaluation, at up to twice the cost.

    For passes inside the block that are not compiled. What training estimates on purpose (CPL's norm, a shorter
    series of SOC) stays as it is: `MethodInfo.train_eval_difference`.
    """
    token = _EXACT.set(True)
    try:
        yield
    finally:
        _EXACT.reset(token)


def kept_activation(hidden: Tensor) -> Tensor:
    """What a layer keeps of an activation for the gradients of its weights: of float32, on CPUs, bfloat16.

    Its signs are exact, so that the gradient for the input is. Those of the weights are sums over all pixels of
    products with numbers that are off by up to 2^-9 of their own size. On accelerators it would be one more kernel.
    """
    narrow = hidden.dtype == torch.float32 and suits_cpu(hidden.device) and may_approximate(True)
    return hidden.bfloat16() if narrow else hidden
