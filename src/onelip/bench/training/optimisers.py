"""Optimisers by name: those of torch, onelip's own, and Muon with Adam for what it does not take."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.optim import ManifoldAdam


def known_optimisers() -> dict[str, type[torch.optim.Optimizer]]:
    """Those that take a learning rate and weight decay and need no closure, by lower-case name."""
    classes = [value for value in vars(torch.optim).values() if inspect.isclass(value)]
    optimisers = [value for value in classes if issubclass(value, torch.optim.Optimizer)]
    suitable = [value for value in optimisers if {"lr", "weight_decay"} <= _arguments(value)]
    by_name = {value.__name__.lower(): value for value in [*suitable, ManifoldAdam]}
    return {name: by_name[name] for name in sorted(by_name)}


def find_optimiser(name: str) -> type[torch.optim.Optimizer]:
    """The optimiser of that name in any case."""
    known = known_optimisers()
    if name.lower() not in known:
        raise InvalidInputError(f"unknown optimizer {name!r}; known: {', '.join(known)}")
    return known[name.lower()]


def make_optimiser(
    name: str, model: nn.Module, *, lr: float, weight_decay: float, momentum: float
) -> torch.optim.Optimizer:
    """The optimiser of that name; momentum is passed on where there is such an argument."""
    optimiser: Any = find_optimiser(name)
    trained: Any = model if optimiser is ManifoldAdam else model.parameters()
    arguments: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
    if "momentum" in _arguments(optimiser):
        arguments["momentum"] = momentum
    try:
        return optimiser(trained, **arguments)
    except ValueError as error:  # such as Muon, which takes matrices only
        raise InvalidInputError(f"optimizer {name} cannot train this network: {error}") from error


def _arguments(optimiser: type) -> set[str]:
    return set(inspect.signature(optimiser.__init__).parameters)
