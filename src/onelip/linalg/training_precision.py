"""Whether training may transform parameters less exactly than evaluation does.

In training every step makes new transformed parameters, and certificates are made of those of evaluation: float32 and
short polynomials are enough there. What that changes is in each method's `MethodInfo.training_error`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_EXACT: ContextVar[bool] = ContextVar("exact_transforms", default=False)


def may_approximate(training: bool) -> bool:
    """Whether a layer in this mode takes the approximations of training. Compilers do not follow context variables."""
    return training and (torch.compiler.is_compiling() or not _EXACT.get())


@contextmanager
def exact_transforms() -> Iterator[None]:
    """Layers in training transform their parameters as exactly as in evaluation, at up to twice the cost.

    For passes inside the block that are not compiled. CPL and spectral normalisation divide by the proven norm of
    evaluation then, at many times the cost. A shorter series of SOC stays as it is: `MethodInfo.train_eval_difference`.

    Examples:
        >>> import torch, onelip
        >>> layer, x = onelip.create_conv("lot", 4, 4, 3), torch.randn(1, 4, 8, 8)
        >>> with onelip.exact_transforms():
        ...     y = layer(x)
        >>> torch.allclose(y, layer.eval()(x), atol=1e-4)
        True
    """
    token = _EXACT.set(True)
    try:
        yield
    finally:
        _EXACT.reset(token)
