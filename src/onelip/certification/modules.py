"""Two modules that models around 1-Lipschitz layers need, whose constants are not 1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError


class Normalise(nn.Module):
    """(x - mean) / std per channel, with fixed numbers. Its Lipschitz constant is 1 / min(std), not 1.

    Put it in front of a network that was trained on normalised images: certified radii are then in the units of the
    images themselves. With std = 1 it subtracts the mean only, as the comparison paper does.

    Examples:
        >>> import torch, onelip
        >>> onelip.lipschitz_bound(onelip.Normalise([0.5], [0.25]), (1, 8, 8)) < 4.001
        True
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float] | None = None) -> None:
        super().__init__()
        std = [1.0] * len(mean) if std is None else std
        if len(std) != len(mean) or not all(0 < s < float("inf") for s in std):
            raise InvalidInputError(f"std={list(std)} must be {len(mean)} positive numbers, one for each mean")
        self.register_buffer("mean", torch.tensor([float(m) for m in mean]))
        self.register_buffer("std", torch.tensor([float(s) for s in std]))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, ...) to the same shape."""
        shape = (-1, *[1] * (x.dim() - 2))
        return (x - self.mean.reshape(shape)) / self.std.reshape(shape)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


class Residual(nn.Module):
    """x + branch(x). Its Lipschitz constant is at most 1 + that of the branch.

    Examples:
        >>> import torch, onelip
        >>> onelip.lipschitz_bound(onelip.Residual(torch.nn.ReLU()), (3,)) <= 2 + 1e-6
        True
    """

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        """The input plus the branch."""
        return x + self.branch(x)
