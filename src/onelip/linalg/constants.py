"""Constants that are made once per size, type and device: making them takes longer than using them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from onelip.linalg.tensor_modes import may_keep_tensors, ordinary_tensors

_Constants = TypeVar("_Constants")
_MOST_KEPT = 64
_kept: dict[tuple[Any, ...], Any] = {}


def keep_constant(
    key: tuple[Any, ...], device: torch.device | None, make: Callable[[torch.device], _Constants]
) -> _Constants:
    """What `make` returns for this device, kept under `key` and the device; do not write to it.

    Only ordinary tensors are kept, see `onelip.linalg.tensor_modes`.
    """
    device = _located(device)
    if not may_keep_tensors():
        return make(device)
    key = (*key, device)
    if key not in _kept:
        while len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)))
        with ordinary_tensors():
            _kept[key] = make(device)
    return _kept[key]


def _located(device: torch.device | None) -> torch.device:
    """The device by its full name: "cuda" and None mean another one in another context."""
    if device is not None and (device.type in ("cpu", "meta") or device.index is not None):
        return device
    return torch.empty(0, device=device).device
