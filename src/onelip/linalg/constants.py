"""Constants that are made once per size, type and device: making them takes longer than using them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_map_only

from onelip.linalg.devices import has_float64
from onelip.linalg.tensor_modes import fake_mode_alone, may_cache_tensors, ordinary_tensors

_Constants = TypeVar("_Constants")
_MOST_CACHED = 64
_cache: dict[tuple[Any, ...], Any] = {}


def cached_constant(
    key: tuple[Any, ...], device: torch.device | None, make: Callable[[torch.device], _Constants]
) -> _Constants:
    """What `make` returns for this device, cached under `key` and the device; do not write to it.

    Only ordinary tensors are cached, see `onelip.linalg.tensor_modes`, and fake ones for the rest of their mode's life.
    """
    device = _located(device)
    if may_cache_tensors():
        cache = _cache
    elif (mode := fake_mode_alone()) is not None:
        # With the mode itself, which fake tensors refer to: a table of ours would keep it alive.
        cache = vars(mode).setdefault("_onelip_constants", {})
    else:
        return _made(make, device)
    key = (*key, device)
    constants = cache.pop(key, None)
    if constants is None:
        while len(cache) >= _MOST_CACHED:
            cache.pop(next(iter(cache)), None)
        with ordinary_tensors():
            constants = _made(make, device)
    cache[key] = constants  # last: what goes first is what was used longest ago, never what a network at work needs
    return constants


def _made(make: Callable[[torch.device], _Constants], device: torch.device) -> _Constants:
    """On the device itself, or by the CPU, as constants are rounded from float64."""
    if has_float64(device):
        return make(device)
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), make(torch.device("cpu")))


def identity(side: int, like: torch.Tensor) -> torch.Tensor:
    """The cached identity matrix in the type and on the device of a tensor."""
    return cached_constant(
        ("identity", side, like.dtype), like.device, lambda device: torch.eye(side, dtype=like.dtype, device=device)
    )


def _located(device: torch.device | None) -> torch.device:
    """The device by its full name: "cuda" and None mean another one in another context."""
    if device is not None and (device.type in ("cpu", "meta") or device.index is not None):
        return device
    return torch.empty(0, device=device).device
