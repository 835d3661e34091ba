"""Models for the red team: every method, random graphs, linear and ReLU models near their boundaries.

A target is drawn from a seed alone, so that every finding can be repeated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from onelip import fuse
from onelip.certification import Residual
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
    return target_of(key, fuse(model, (2, side, side)), 3 * torch.randn(16, 2, side, side))


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
        self.steps = [(_pick(len(OPERATIONS)), _pick(64), _pick(64)) for _ in range(length)]
        self.numbers = [float(torch.randn(())) for _ in range(length)]
        key = list_methods()[_pick(len(list_methods()))].key
        layer = create_conv(key, 4, 4, 3, padding_mode="circular").eval()
        self.shared = nn.ModuleList(
            [
                layer.fuse((4, 4)),
                _normalised(nn.Conv2d(4, 4, 3, padding=1)),
                _normalised(nn.Conv2d(4, 4, 1, groups=2, bias=False)),
                nn.BatchNorm2d(4),
                Residual(nn.Conv2d(4, 4, 1)),
                nn.AvgPool2d(3, 1, 1),
                nn.MaxPool2d(3, 1, 1),
                nn.AdaptiveAvgPool2d(4),
                MaxMin(),
                nn.GELU(),
                nn.LeakyReLU(0.3),
                nn.Sequential(nn.ELU(0.5), nn.Hardtanh(-0.7, 0.9)),
            ]
        )
        self.shared[3].get_buffer("running_mean").normal_()
        self.shared[3].get_buffer("running_var").uniform_(0.5, 2)
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        stack = [x]
        for (operation, first, second), number in zip(self.steps, self.numbers, strict=True):
            left, right = stack[-1 - first % min(len(stack), 3)], stack[-1 - second % min(len(stack), 3)]
            if operation == 0:
                stack.append(self.shared[first % len(self.shared)](right))
            else:
                stack.append(OPERATIONS[operation](left, right, number))
        return self.head(torch.flatten(stack[-1], 1))


def _pick(count: int) -> int:
    return int(torch.randint(count, ()))


def _normalised(layer: nn.Conv2d) -> nn.Conv2d:
    with torch.no_grad():
        layer.weight.div_(layer.weight.norm() / 1.5)
    return layer


def _halves(left: Tensor, right: Tensor) -> Tensor:
    a, b = torch.chunk(left, 2, dim=1)
    return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], dim=1)


OPERATIONS: list[Callable[[Tensor, Tensor, float], Tensor]] = [
    lambda a, b, c: a,  # a module, see `forward`
    lambda a, b, c: a + b,
    lambda a, b, c: a - b,
    lambda a, b, c: a * c + b,
    lambda a, b, c: 0.25 * a + 0.75 * b,
    lambda a, b, c: torch.cat([a[:, :2], b[:, 2:]], dim=1),
    lambda a, b, c: _halves(a, b),
    lambda a, b, c: a + torch.mean(b, dim=(2, 3), keepdim=True),
    lambda a, b, c: a + torch.sum(b, dim=1, keepdim=True),
    lambda a, b, c: torch.flip(a, (2, 3)),
    lambda a, b, c: torch.roll(a, 1, 3),
    lambda a, b, c: torch.relu(a) - torch.tanh(b),
    lambda a, b, c: torch.abs(a),
    lambda a, b, c: torch.nn.functional.pixel_unshuffle(torch.nn.functional.pixel_shuffle(a, 2), 2),
    lambda a, b, c: a.permute(0, 1, 3, 2),
    lambda a, b, c: torch.nn.functional.pad(a[:, :, 1:], (0, 0, 0, 1)),
    lambda a, b, c: torch.nn.functional.avg_pool2d(a, 2).repeat_interleave(2, 2).repeat_interleave(2, 3) + b,
    lambda a, b, c: torch.stack([a, b], dim=2).sum(2),
    lambda a, b, c: torch.clamp(a, -1, 1) + c,
    lambda a, b, c: torch.nn.functional.max_pool2d(a, 2, 1, 1)[:, :, :4, :4],
]


def graph_target(seed: int) -> Target:
    """A random program."""
    torch.manual_seed(seed)
    return target_of("graph", RandomGraph(2 + seed % 7), 2 * torch.randn(16, 4, 4, 4))
