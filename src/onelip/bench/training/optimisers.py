"""Optimisers by name (torch's, onelip's own, Muon with Adam for what it does not take), and their schedule."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

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
    if name.lower() == "muon":
        return MuonAndAdam(model, lr=lr, weight_decay=weight_decay, momentum=momentum)
    trained: Any = model if optimiser is ManifoldAdam else model.parameters()
    arguments: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
    if "momentum" in _arguments(optimiser):
        arguments["momentum"] = momentum
    try:
        return optimiser(trained, **arguments)
    except ValueError as error:
        raise InvalidInputError(f"optimizer {name} cannot train this network: {error}") from error


class MuonAndAdam(torch.optim.Optimizer):
    """torch's Muon for matrices, and Adam for what it refuses: biases, kernels and stacks of matrices.

    Muon's steps are scaled to the size of Adam's, so that one learning rate is that of both. One of torch's optimisers
    in all else: its groups are those of the two.
    """

    def __init__(self, model: nn.Module, *, lr: float, weight_decay: float, momentum: float) -> None:
        matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
        others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
        if not matrices:
            raise InvalidInputError("optimizer muon cannot train this network: it has no matrix")
        muon: Any = torch.optim.Muon  # pyright: ignore[reportAttributeAccessIssue] - younger than torch 2.6
        self.parts: list[torch.optim.Optimizer] = [
            muon(matrices, lr, weight_decay, momentum, adjust_lr_fn="match_rms_adamw")
        ]
        if others:
            self.parts.append(torch.optim.Adam(others, lr, weight_decay=weight_decay))
        super().__init__([group for part in self.parts for group in part.param_groups], {})

    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step of both."""
        for part in self.parts:
            part.step(closure)

    def state_dict(self) -> dict[str, Any]:
        """Those of both."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def _arguments(optimiser: type) -> set[str]:
    return set(inspect.signature(optimiser.__init__).parameters)


@dataclass(frozen=True)
class OneCycle:
    """The schedule for one highest learning rate."""

    max_lr: float
    warm_up: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    base_momentum: float = 0.85
    max_momentum: float = 0.95

    def at(self, fraction: float, steps: int) -> tuple[float, float]:
        """Learning rate, and momentum, which is low where the rate is high, at this fraction of about `steps` steps.

        torch lets the first phase end one step early (at 0.3 N - 1 of N - 1), which matters in short runs.
        """
        position, top, start = fraction * (steps - 1), self.warm_up * steps - 1, self.max_lr / self.div_factor
        if position <= top and top > 0:
            share = position / top
            return _cosine(start, self.max_lr, share), _cosine(self.max_momentum, self.base_momentum, share)
        share, end = (position - top) / (steps - 1 - top), start / self.final_div_factor
        return _cosine(self.max_lr, end, share), _cosine(self.base_momentum, self.max_momentum, share)

    def apply(self, optimizer: Optimizer, fraction: float, steps: int, *, cycle_momentum: bool) -> float:
        """Set learning rate and momentum (or beta1) of all groups; returns the learning rate."""
        lr, momentum = self.at(fraction, steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
            if cycle_momentum and "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            elif cycle_momentum and "momentum" in group:
                group["momentum"] = momentum
        return lr


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
