"""States of generators of random numbers, to see whether something was drawn."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch


def global_states(device: torch.device) -> list[Any]:
    """Those of torch, on this device too, of Python and of NumPy."""
    states = [torch.get_rng_state(), random.getstate(), numpy.random.get_state(legacy=False)]  # noqa: NPY002
    if device.type != "cpu":
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
