"""Activations with learned or data-dependent pieces, each piece of slope at most 1 in absolute value.

A continuous function of one variable that consists of pieces with slopes in [-1, 1] is 1-Lipschitz, and so is the map
that applies one to each entry.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.arguments import check_positive
from onelip.proofs.bounded import BoundedModule, moves_entries
from onelip.proofs.layer_bound import LayerBound, linear_bound
from onelip.proofs.proven import SAFETY


class NActivation(BoundedModule):
    """The zigzag with slopes 1, -1, 1 and two learned corners a <= b for each channel.

        x - 2a  for x <= a,      -x  for a <= x <= b,      x - 2b  for x >= b

    It contains |x| (a far below 0, b = 0) and the identity (a = b = 0), and lets a 1-Lipschitz network approximate
    every 1-Lipschitz function of one variable, which MaxMin does not. Prach, Lampert: "1-Lipschitz neural networks are
    more expressive with N-activations" (2023).

    Args:
        channels: size of dimension `dim`.
        dim: the dimension of the channels.
        init: "abs-identity" starts even channels as |x| and odd ones as the identity, "abs" and "identity" all alike.
        device: where to create the parameters.
        dtype: type of the parameters.

    Examples:
        >>> import torch
        >>> from onelip.layers import NActivation
        >>> NActivation(2)(torch.rand(4, 2)).shape
        torch.Size([4, 2])
    """

    repr_format = "{0.channels}, dim={0.dim}, init={0.init!r}"

    _FAR = -100.0
    """A corner that activations do not reach at the start."""

    def __init__(
        self,
        channels: int,
        dim: int = 1,
        *,
        init: str = "abs-identity",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(self, channels=channels)
        if init not in ("abs-identity", "abs", "identity"):
            raise InvalidInputError(f"NActivation: init={init!r} is not known, use abs-identity, abs or identity")
        self.channels, self.dim, self.init = channels, dim, init
        self.corners = nn.Parameter(torch.empty(2, channels, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Corners of the start."""
        self.corners.zero_()
        if self.init != "identity":
            self.corners[0, :: 2 if self.init == "abs-identity" else 1] = self._FAR

    def forward(self, x: Tensor) -> Tensor:
        """Apply the zigzag of each channel."""
        dim = self.dim % x.dim()
        if x.shape[dim] != self.channels:
            raise InvalidInputError(f"NActivation({self.channels}) got {x.shape[dim]} channels in dimension {self.dim}")
        low, high = (c.reshape(-1, *[1] * (x.dim() - 1 - dim)) for c in self.corners.sort(0).values)
        return torch.where(x <= low, x - 2 * low, torch.where(x < high, -x, x - 2 * high)).to(x.dtype)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Constant 1. Zero moves by 2a where a > 0 and by -2b where b < 0; elsewhere the result is at most |x|."""
        low, high = self.corners.detach().double().sort(0).values
        moved = 2 * torch.maximum(low.clamp_min(0), -high.clamp_max(0))
        copies = math.prod(input_shape) // self.channels
        offset = math.hypot(*moved.tolist()) * math.sqrt(copies) * SAFETY
        return linear_bound(1.0, 1.0, 2, math.prod(input_shape), offset)


class LipschitzPReLU(BoundedModule):
    """max(0, x) + s min(0, x) with a learned slope s that is kept in [-1, 1].

    Args:
        num_parameters: 1 slope for all channels, or as many as there are channels in dimension 1.
        init: the slope at the start.
        device: where to create the slopes.
        dtype: type of the slopes.

    Examples:
        >>> import torch
        >>> from onelip.layers import LipschitzPReLU
        >>> LipschitzPReLU(2)(torch.tensor([[1.0, 2.0]]))
        tensor([[1., 2.]], grad_fn=...)
    """

    repr_format = "num_parameters={0.num_parameters}"

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(self, num_parameters=num_parameters)
        if not -1 <= init <= 1:
            raise InvalidInputError(f"LipschitzPReLU: init={init} must be in [-1, 1]")
        self.num_parameters = num_parameters
        self.weight = nn.Parameter(torch.full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Apply it along dimension 1."""
        return nn.functional.prelu(x, self.weight.clamp(-1.0, 1.0))

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """One product per entry."""
        return linear_bound(1.0, 1.0, 1, math.prod(input_shape))


class FullSort(BoundedModule):
    """Sort all entries along `dim` in ascending order: GroupSort with one group.

    Examples:
        >>> import torch
        >>> from onelip.layers import FullSort
        >>> FullSort()(torch.tensor([[1.0, 5.0, 3.0]]))
        tensor([[1., 3., 5.]])
    """

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Sort."""
        return x.sort(self.dim).values

    bound = moves_entries
    repr_format = "dim={0.dim}"
