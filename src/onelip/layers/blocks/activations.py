"""Activations that keep distances from growing and the norm of every gradient as it is.

Where they are differentiable, their Jacobians are orthogonal: permutations (MaxMin, GroupSort), reflections
(Householder), signs (Abs). ReLU has constant 1 too, but it loses the gradient wherever it cuts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.linalg.definition import Definition
from onelip.proofs.bounded import BoundedModule, check_keeps_samples_apart, moves_entries
from onelip.proofs.layer_bound import LayerBound, relative_bound

_REFLECTION_ULPS = 64.0
"""Units of roundoff within which a reflection is computed."""


class MaxMin(BoundedModule):
    """(x_j, x_{j+c/2}) -> (max, min) along `dim`: the first half of the c outputs are maxima, the rest minima.

    Anil, Lucas, Grosse: "Sorting out Lipschitz function approximation" (2019). Where a pair is equal, its
    gradient passes straight through: a permutation, as everywhere else. Any number of derivatives can be taken.

    Examples:
        >>> import torch
        >>> from onelip.layers import MaxMin
        >>> MaxMin()(torch.tensor([[1.0, 5.0, 3.0, 2.0]]))
        tensor([[3., 5., 1., 2.]])
    """

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        if type(dim) is not int:
            raise InvalidInputError(f"MaxMin: dim={dim!r} must be an integer")
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Sort every pair; shape and memory layout are those of x."""
        _check_groups(self, x, self.dim, 2)
        return max_min(x, self.dim)

    bound = moves_entries
    repr_format = "dim={0.dim}"


def members(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The pairs that `MaxMin` sorts, one member each."""
    first, second = x.chunk(2, dim)
    return first, second


@Definition
def max_min(x: Tensor, dim: int) -> Tensor:
    """The maxima of all pairs, then the minima.

    `where` rather than `maximum`, whose gradient at a tie is the mean of both: that shrinks it.
    """
    first, second = members(x, dim)
    keep = first >= second
    return torch.cat([torch.where(keep, first, second), torch.where(keep, second, first)], dim)


class GroupSort(BoundedModule):
    """Sort groups of `group_size` channels in descending order: the m-th largest of all groups, then the next.

    With n groups, group j holds the channels j, j + n, j + 2n, ..., so that group_size=2 is MaxMin. Anil,
    Lucas, Grosse: "Sorting out Lipschitz function approximation" (2019).

    Args:
        group_size: how many channels are sorted together; it divides their number.
        dim: the dimension of the channels.

    Examples:
        >>> import torch
        >>> from onelip.layers import GroupSort
        >>> GroupSort(4)(torch.tensor([[1.0, 5.0, 3.0, 2.0]]))
        tensor([[5., 3., 2., 1.]])
    """

    def __init__(self, group_size: int, dim: int = 1) -> None:
        super().__init__()
        if not isinstance(group_size, int) or group_size < 2:
            raise InvalidInputError(f"GroupSort: group_size={group_size!r} must be an integer of at least 2")
        self.group_size, self.dim = group_size, dim

    def forward(self, x: Tensor) -> Tensor:
        """Sort every group."""
        _check_groups(self, x, self.dim, self.group_size)
        dim = self.dim % x.dim()
        groups = x.unflatten(dim, (self.group_size, x.shape[dim] // self.group_size))
        return torch.sort(groups, dim=dim, descending=True).values.flatten(dim, dim + 1)

    bound = moves_entries
    repr_format = "{0.group_size}, dim={0.dim}"


class Householder(BoundedModule):
    """Reflect the pair (x_j, x_{j+c/2}) if it lies on one side of a learned line through 0.

    With an angle t for each pair, the line is spanned by (cos t/2, sin t/2):

        (x, y) -> (x, y)                                    if x sin(t/2) >= y cos(t/2)
        (x, y) -> (x cos t + y sin t, x sin t - y cos t)    otherwise

    Points of the line are their own reflections, so the map is continuous. t = pi/2, the start, is MaxMin.
    Singla, Singla, Feizi: "Improved deterministic l2 robustness on CIFAR-10 and CIFAR-100" (2022).

    Args:
        channels: their number, which is even.
        dim: the dimension of the channels.
        device: where to create the angles.
        dtype: type of the angles.

    Examples:
        >>> import torch
        >>> from onelip.layers import Householder
        >>> x = torch.randn(2, 8)
        >>> torch.allclose(Householder(8)(x).norm(dim=1), x.norm(dim=1))
        True
    """

    repr_format = "{0.channels}, dim={0.dim}"

    def __init__(
        self,
        channels: int,
        dim: int = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(channels, int) or channels < 2 or channels % 2:
            raise InvalidInputError(f"Householder: channels={channels!r} must be a positive even integer")
        self.channels, self.dim = channels, dim
        self.angle = nn.Parameter(torch.empty(channels // 2, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start as MaxMin."""
        nn.init.constant_(self.angle, math.pi / 2)

    def forward(self, x: Tensor) -> Tensor:
        """Reflect the pairs on the one side of their lines."""
        if x.shape[self.dim] != self.channels:
            raise InvalidInputError(
                f"Householder({self.channels}) got an input of {x.shape[self.dim]} channels in dimension {self.dim}"
            )
        angle = self.angle.reshape(-1, *[1] * (x.dim() - 1 - self.dim % x.dim()))
        first, second = members(x, self.dim)
        keep = first * torch.sin(angle / 2) >= second * torch.cos(angle / 2)
        cos, sin = torch.cos(angle), torch.sin(angle)
        out_first = torch.where(keep, first, first * cos + second * sin)
        out_second = torch.where(keep, second, first * sin - second * cos)
        # Lower-precision inputs are reflected in the precision of the angles, then rounded once.
        return torch.cat([out_first, out_second], self.dim).to(x.dtype)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Constant 1. A reflection is two products and a sum per entry, with cosines and sines.

        Where rounding decides on the wrong side of the line, the point is within a few roundoffs of it, and reflecting
        it or not is the same to twice that.
        """
        check_keeps_samples_apart(self, self.dim, input_shape)
        return relative_bound(1.0, _REFLECTION_ULPS, math.prod(input_shape))


class Abs(BoundedModule):
    """x -> |x|.

    Examples:
        >>> import torch
        >>> from onelip.layers import Abs
        >>> Abs()(torch.tensor([-1.0, 2.0]))
        tensor([1., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """The absolute value of every entry."""
        return x.abs()

    bound = moves_entries


def _check_groups(module: nn.Module, x: Tensor, dim: int, group_size: int) -> None:
    if not hasattr(x, "shape") or not -len(x.shape) <= dim < len(x.shape):
        found = f"shape {tuple(x.shape)}" if hasattr(x, "shape") else f"a {type(x).__name__}"
        raise InvalidInputError(f"{type(module).__name__} expects a tensor with a dimension {dim}, got {found}")
    if x.shape[dim] % group_size:
        raise InvalidInputError(
            f"{type(module).__name__} needs a multiple of {group_size} channels in dimension {dim}, got {x.shape[dim]}"
        )
