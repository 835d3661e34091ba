"""Models for the red team: every method, random graphs, linear and ReLU models near their boundaries.

A target is drawn from a seed alone, so that every finding can be repeated.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from red_team_ideas import Copies, odd_model
from red_team_operations import STEPS, modules
from torch import Tensor, nn

from onelip import fuse
from onelip.layers import MaxMin, create_conv, create_linear, list_methods


@dataclass(frozen=True)
class Target:
    """A deployed float32 model, the same weights as a float64 program, and inputs for both."""

    name: str
    model: nn.Module
    wide: nn.Module
    x: Tensor


def target_of(name: str, model: nn.Module, x: Tensor) -> Target:
    model = model.eval().requires_grad_(False)
    return Target(name, model, copy.deepcopy(model).double(), x)


def method_target(seed: int) -> Target:
    """Two convolutions, a residual connection and a head of one method, with weights far from the start."""
    torch.manual_seed(seed)
    methods = list_methods()
    key = methods[seed % len(methods)].key
    channels, side = 4, 4
    padding = "circular" if seed // len(methods) % 2 else "zeros"
    layers = [
        create_conv(key, 2, channels, 3, padding_mode=padding),
        MaxMin(),
        create_conv(key, channels, channels, 3, padding_mode=padding),
        nn.ReLU(),
        nn.Flatten(),
        create_linear(key, channels * side * side, 6),
    ]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=float(10 ** torch.empty(()).uniform_(-2, 0.5)))
    model = model.eval() if seed // (2 * len(methods)) % 2 else fuse(model, (2, side, side))
    return target_of(key, model, 3 * torch.randn(16, 2, side, side))


def linear_target(seed: int) -> Target:
    """A linear classifier on inputs far from zero and close to the boundary, where rounding decides."""
    torch.manual_seed(seed)
    features = 8 + seed % 120
    model = nn.Linear(features, 2 + seed % 3)
    x = 20 * torch.randn(()) + torch.randn(32, features)
    with torch.no_grad():
        difference = model.weight[0] - model.weight[1]
        scores = model(x)
        x = x - (scores[:, :1] - scores[:, 1:2]) * difference / difference.square().sum()
        x = x + 1e-3 * torch.rand(32, 1) ** 4 * difference * torch.randn(32, 1)
    return target_of("linear", model, x)


def small_target(seed: int) -> Target:
    """A linear or ReLU model small enough for rational arithmetic."""
    torch.manual_seed(seed)
    features, hidden = 2 + seed % 4, 2 + seed % 3
    layers = [nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 3)] if seed % 2 else [nn.Linear(features, 3)]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(float(10 ** torch.empty(()).uniform_(-3, 3)))
    return target_of("small", model, torch.randn(8, features) * 10 ** torch.empty(8, 1).uniform_(-3, 3))


class RandomGraph(nn.Module):
    """A program of random operations on a stack of images (b, 4, 4, 4), then a head. Modules may occur twice."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.steps = [(_pick(len(STEPS) + len(STEPS) // 3), _pick(64), _pick(64)) for _ in range(length)]
        self.numbers = [float(torch.randn(())) for _ in range(length)]
        key = list_methods()[_pick(len(list_methods()))].key
        layer = create_conv(key, 4, 4, 3, padding_mode="circular").eval()
        self.shared = nn.ModuleList([layer, layer.fuse((4, 4)), *modules()])
        with torch.no_grad():
            for normalised in (module for module in self.shared if hasattr(module, "running_mean")):
                normalised.get_buffer("running_mean").normal_()
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        stack = [x]
        for (step, first, second), number in zip(self.steps, self.numbers, strict=True):
            left, right = stack[-1 - first % min(len(stack), 3)], stack[-1 - second % min(len(stack), 3)]
            if step < len(STEPS):
                stack.append(STEPS[step](left, right, number))
            else:
                stack.append(self.shared[first % len(self.shared)](right))
        return self.head(torch.flatten(stack[-1], 1))


def _pick(count: int) -> int:
    return int(torch.randint(count, ()))


def graph_target(seed: int) -> Target:
    """A random program."""
    torch.manual_seed(seed)
    return target_of("graph", RandomGraph(2 + seed % 7), 2 * torch.randn(16, 4, 4, 4))


def idea_target(seed: int) -> Target:
    """A program that nobody had tried."""
    name, model, x = odd_model(seed)
    return Target(name, Copies(model), Copies(copy.deepcopy(model).double()), x)
