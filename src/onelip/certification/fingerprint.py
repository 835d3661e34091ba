"""All that a change of a model could be seen by: its modules, their attributes and hooks, its weights.

Weights are compared number by number, so that writes through `.data` and NumPy are seen. A module of the user's own may
keep what it computes for the shape at hand (a mask, a table of positions): attributes that were None or not there may
appear, and tensors may change their shape. Whatever else changes is state, and a model with state is another function
at every call.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_internals

_TORCHS_OWN = frozenset(vars(nn.Module()))
_PLAIN = (int, float, complex, str, bytes)
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, torch.nn.Module)
_BOOKKEEPING = ("_bias_version",)  # no pass computes with it: a layer warns by it when evaluation mode is trained
_DEPTH = 4
"""How far objects, lists and dictionaries inside of each other are looked into."""


class Fingerprint:
    """A model as it was."""

    def __init__(self, model: nn.Module) -> None:
        self._structure = _structure(model)
        self._tensors = [tensor.detach().clone() for tensor in _tensors(model)]
        self._attributes = _attributes(model)

    def matches(self, model: nn.Module) -> bool:
        """Whether the model is as it was."""
        same = _structure(model) == self._structure and all(map(same_numbers, self._tensors, _tensors(model)))
        return same and not self.changed_attributes(model)

    def changed_attributes(self, model: nn.Module) -> list[str]:
        """Which attributes of the user's own modules are not what they were."""
        now = _attributes(model)
        return [name for name, old in self._attributes.items() if name not in now or not _same(old, now[name])]


def same_numbers(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same, NaN included."""
    if first.shape != second.shape or first.dtype != second.dtype or first.device != second.device:
        return False
    return torch.equal(first, second) or bool(((first == second) | (first.isnan() & second.isnan())).all())


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _is_known(module: nn.Module) -> bool:
    return type(module).__module__.startswith(("torch.", "onelip."))


def _structure(model: nn.Module) -> list[Any]:
    hooks = module_internals._global_forward_hooks, module_internals._global_forward_pre_hooks
    found: list[Any] = [tuple(map(len, hooks)), [tuple(t.shape) for t in _tensors(model)]]
    for name, module in model.named_modules(remove_duplicate=False):
        plain = {
            key: value
            for key, value in vars(module).items()
            if isinstance(value, int | float | str | tuple) and key not in _BOOKKEEPING
        }
        own = tuple(key for key in vars(module) if key in ("forward", "_call_impl", "_conv_forward"))
        counts = len(module._forward_hooks), len(module._forward_pre_hooks)
        found.append((name, id(module), type(module), counts, own, plain if _is_known(module) else None))
    return found


def _attributes(model: nn.Module) -> dict[str, Any]:
    """What the user's own modules hold beside modules, parameters and buffers, by name."""
    return {
        f"{name}.{key}" if name else key: _snapshot(value, _DEPTH)
        for name, module in model.named_modules()
        if not _is_known(module)
        for key, value in vars(module).items()
        if key not in _TORCHS_OWN
    }


def _snapshot(value: Any, depth: int) -> Any:
    """A copy of numbers, words and tensors inside lists, dictionaries and objects."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, (*_PLAIN, *_FUNCTIONS)) or depth == 0:
        return value
    if isinstance(value, dict):
        return {key: _snapshot(part, depth - 1) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_snapshot(part, depth - 1) for part in value]
    return _snapshot(vars(value), depth - 1) if hasattr(value, "__dict__") else None


def _same(old: Any, new: Any) -> bool:
    """Whether nothing changed but what is kept for a shape."""
    if old is None or old is new:
        return True
    if isinstance(old, Tensor):
        return isinstance(new, Tensor) and (old.shape != new.shape or same_numbers(old, new))
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return all(key in new and _same(part, new[key]) for key, part in old.items())
    if isinstance(old, list):
        return len(old) <= len(new) and all(map(_same, old, new))
    if isinstance(old, _PLAIN):
        return old == new or old != old  # NaN stays what it is
    return not isinstance(old, _FUNCTIONS)
