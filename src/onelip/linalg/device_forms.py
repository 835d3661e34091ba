"""Which of two equal computations suits a device: what pays on two cores is not what pays on a GPU.

CPUs are short of arithmetic: layers act on frequencies where that takes fewer operations, keep the channels of a pixel
side by side, and take eigenvectors where those need fewer products. Accelerators have arithmetic to spare and wait for
the host between small kernels: there a convolution stays one, equal matrices go through one batched product, and
nothing looks at a number on the way. XLA has some operations alone (`onelip.linalg.xla_forms`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch

Forms = Literal["cpu", "accelerator", "xla", "mps"]
_FORCED: ContextVar[Forms | None] = ContextVar("device_forms", default=None)


def suits_cpu(device: torch.device) -> bool:
    """Whether tensors of this device are computed as on CPUs. Meta tensors stand for those of a CPU."""
    forced = None if torch.compiler.is_compiling() else _FORCED.get()  # compilers do not follow context variables
    return device.type in ("cpu", "meta") if forced is None else forced == "cpu"


def suits_xla(device: torch.device) -> bool:
    """Whether tensors of this device are computed by what XLA has."""
    forced = None if torch.compiler.is_compiling() else _FORCED.get()
    return device.type == "xla" if forced is None else forced == "xla"


def has_float64(device: torch.device) -> bool:
    """Whether the device computes in float64: Apple's does not."""
    forced = None if torch.compiler.is_compiling() else _FORCED.get()
    return device.type != "mps" if forced is None else forced != "mps"


def has_forced_forms() -> bool:
    """Whether devices are computed on as if they were others."""
    return _FORCED.get() is not None


@contextmanager
def device_forms(forms: Forms) -> Iterator[None]:
    """The forms of CPUs or of accelerators, whatever the device: to predict, count and test what runs elsewhere."""
    token = _FORCED.set(forms)
    try:
        yield
    finally:
        _FORCED.reset(token)
