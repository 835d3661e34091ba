"""Copies of what Python objects hold, to see later whether it changed.

Looked into are lists, tuples, sets, dictionaries, objects with attributes, and functions, which hold values as well: in
their closures, in their defaults and in the global variables that they name. A tensor of another shape, or a value
where there was none, is what code keeps for the shape at hand, and counts as no change.
"""

from __future__ import annotations

import functools
import importlib
import random
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from onelip.certification.traced import Traced, nested

_PLAIN = (int, float, complex, str, bytes)
_THEMSELVES = (BuiltinFunctionType, MethodType, ModuleType, type)
"""What is compared by identity."""

_WRAPPERS = (staticmethod, classmethod, functools.cached_property, functools.partial)
_GLOBALS = (*_PLAIN, list, tuple, dict, set, Tensor, numpy.ndarray)
"""Kinds of global variables that are looked at: those which code counts or collects in."""

_EMPTY = CellType()
_DEPTH = 4
"""How far objects, lists and dictionaries inside of each other are looked into."""


class Same:
    """Something of which only the identity is kept."""

    def __init__(self, value: Any) -> None:
        self.value = value


def is_known(cls: type[Any]) -> bool:
    """Whether a class is torch's, onelip's or Python's own."""
    return cls.__module__.startswith(("torch.", "onelip.")) or cls.__module__ in ("builtins", "abc", "typing")


def same_numbers(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same, NaN included."""
    if first.shape != second.shape or first.dtype != second.dtype or first.device != second.device:
        return False
    return torch.equal(first, second) or bool(((first == second) | (first.isnan() & second.isnan())).all())


def snapshot(value: Any, depth: int = _DEPTH) -> Any:
    """A copy of numbers, words and tensors inside lists, dictionaries, objects and functions."""
    if isinstance(value, Traced):  # kept for others to look at
        return None
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, nn.Module):  # not among the model's own, whose tensors are compared one by one
        return [tensor.detach().clone() for tensor in (*value.parameters(), *value.buffers())]
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, _THEMSELVES):
        return Same(value)
    if depth == 0:
        return None
    state = generator_state(value)
    if state is not None:
        return repr(state)
    if isinstance(value, dict):
        return {key: snapshot(part, depth - 1) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [snapshot(part, depth - 1) for part in value]
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(numpy.frombuffer(value.tobytes(), dtype=numpy.uint8).copy())
    return _inside(value, depth - 1)


def _inside(value: Any, depth: int) -> Any:
    """What functions and other objects hold."""
    if isinstance(value, FunctionType):
        return _function(value, depth)
    if isinstance(value, property):
        return snapshot([value.fget, value.fset], depth)
    if isinstance(value, _WRAPPERS):
        parts = (getattr(value, name, None) for name in ("__func__", "func", "args", "keywords"))
        return snapshot(list(parts), depth)
    return snapshot(vars(value), depth) if hasattr(value, "__dict__") else repr(value)


def _function(function: FunctionType, depth: int) -> Any:
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    known = function.__globals__
    named = {name: known[name] for name in function.__code__.co_names if isinstance(known.get(name), _GLOBALS)}
    held = [cells, function.__defaults__, function.__kwdefaults__, named]
    return [Same(function), *(snapshot(part, depth) for part in held)]


def numbers_held(function: Any) -> list[Any]:
    """The numbers and words that a hook counts or decides by; what it collects for others to look at is left out."""
    held = _function(function, _DEPTH)[1:] if isinstance(function, FunctionType) else []
    return [part for part in nested(held) if isinstance(part, _PLAIN)]


def same(old: Any, new: Any, strictly: bool = False) -> bool:
    """Whether nothing changed but what is kept for a shape; strictly, whether nothing changed at all."""
    if old is None:
        return new is None or not strictly
    if isinstance(old, Tensor):
        return isinstance(new, Tensor) and ((old.shape != new.shape and not strictly) or same_numbers(old, new))
    if type(old) is not type(new):
        return False
    if isinstance(old, Same):
        return old.value is new.value
    if isinstance(old, dict | list) and strictly and len(old) != len(new):
        return False
    if isinstance(old, dict):
        return all(key in new and same(part, new[key], strictly) for key, part in old.items())
    if isinstance(old, list):
        return len(old) <= len(new) and all(same(*pair, strictly) for pair in zip(old, new, strict=False))
    return old == new or old != old  # NaN stays what it is


# Generators of random numbers, to see whether something was drawn


def global_states(device: torch.device) -> list[Any]:
    """Those of torch, on this device too, of Python and of NumPy."""
    states = [torch.get_rng_state(), random.getstate(), numpy.random.get_state(legacy=False)]  # noqa: NPY002
    if device.type == "xla":  # whose package registers no module with torch
        states.append(importlib.import_module("torch_xla.core.xla_model").get_rng_state())
    elif device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state())
    return [_comparable(state) for state in states]


def generator_state(generator: Any) -> Any:
    """The state of a generator of torch, Python or NumPy, None of anything else."""
    if isinstance(generator, torch.Generator):
        return _comparable(generator.get_state())
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, numpy.random.Generator):
        return _comparable(generator.bit_generator.state)
    if isinstance(generator, numpy.random.RandomState):
        return _comparable(generator.get_state(legacy=False))
    return None


def _comparable(state: Any) -> Any:
    """The same with bytes in place of tensors and arrays."""
    if isinstance(state, torch.Tensor):
        return state.cpu().numpy().tobytes()
    if isinstance(state, numpy.ndarray):
        return state.tobytes()
    return {key: _comparable(part) for key, part in state.items()} if isinstance(state, dict) else state
