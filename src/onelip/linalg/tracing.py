"""Whether somebody else looks at the operations: custom autograd functions then step aside."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Compilers and torch.func take the plain operations: the former fuse them, the latter differentiate them."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
