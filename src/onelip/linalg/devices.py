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
_PRETENDED: ContextVar[Forms | None] = ContextVar("pretend_device", default=None)


def _kind(device: torch.device) -> str:
    """The type of device that tensors are computed as on: its own, unless another one is pretended."""
    forced = None if torch.compiler.is_compiling() else _PRETENDED.get()  # compilers do not follow context variables
    return device.type if forced is None else forced


def is_cpu(device: torch.device) -> bool:
    """Whether tensors of this device are computed as on CPUs. Meta tensors stand for those of a CPU."""
    return _kind(device) in ("cpu", "meta")


def is_xla(device: torch.device) -> bool:
    """Whether tensors of this device are computed by what XLA has."""
    return _kind(device) == "xla"


def has_float64(device: torch.device) -> bool:
    """Whether the device computes in float64: Apple's does not."""
    return _kind(device) != "mps"


def is_pretended() -> bool:
    """Whether another device is pretended."""
    return _PRETENDED.get() is not None


@contextmanager
def pretend_device(forms: Forms) -> Iterator[None]:
    """The forms of CPUs or of accelerators, whatever the device: to predict, count and test what runs elsewhere."""
    token = _PRETENDED.set(forms)
    try:
        yield
    finally:
        _PRETENDED.reset(token)
