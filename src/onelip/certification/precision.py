"""Full precision, whatever the caller has switched on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """No autocast, no tf32 or bfloat16 products, and no cuDNN: its Winograd convolutions are no inner products."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with ExitStack() as stack:
        stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch.cuda.is_available():
            stack.enter_context(torch.autocast("cuda", enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(products)
            torch.backends.cudnn.allow_tf32 = convolutions
