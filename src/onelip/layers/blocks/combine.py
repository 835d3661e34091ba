"""Ways to bring branches together, and a last layer, that keep a network 1-Lipschitz.

For 1-Lipschitz f and g: a f + (1 - a) g is 1-Lipschitz for a in [0, 1], and so is the concatenation of n branches
divided by sqrt(n), because the squares of their differences add up. These modules are made of operations that
certificates know, so they need no bound of their own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.arguments import check_numbers, check_positive
from onelip.layers.initialisation import draw_orthogonal


class ConvexSum(nn.Module):
    """a x + (1 - a) y with a number a in [0, 1], learned as the sigmoid of a parameter or fixed.

    Args:
        weight: a at the start.
        learnable: whether a is trained; it has to start strictly between 0 and 1 then.
        device: where to create the parameter.
        dtype: type of the parameter.

    Examples:
        >>> import torch
        >>> from onelip.layers import ConvexSum
        >>> ConvexSum()(torch.zeros(2), torch.ones(2)).shape
        torch.Size([2])
    """

    logit: Tensor
    weight: Tensor

    def __init__(
        self,
        weight: float = 0.5,
        learnable: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not (0 < weight < 1 if learnable else 0 <= weight <= 1):
            allowed = "(0, 1) where it is learned" if learnable else "[0, 1]"
            raise InvalidInputError(f"{type(self).__name__}: weight={weight} must be in {allowed}")
        self.learnable = learnable
        if learnable:
            start = torch.tensor(math.log(weight / (1 - weight)), device=device, dtype=dtype)
            self.logit = nn.Parameter(start)
        else:
            self.register_buffer("weight", torch.tensor(weight, device=device, dtype=dtype))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The combination of two tensors of one shape."""
        if x.shape != y.shape:
            raise InvalidInputError(
                f"{type(self).__name__} adds tensors of one shape, got {tuple(x.shape)} and {tuple(y.shape)}"
            )
        a = self.logit.sigmoid() if self.learnable else self.weight
        return a * x + (1 - a) * y

    def extra_repr(self) -> str:
        """The share of the first tensor."""
        a = self.logit.detach().sigmoid() if self.learnable else self.weight
        return f"weight={float(a):.4g}, learnable={self.learnable}"


class LipschitzResidual(ConvexSum):
    """a x + (1 - a) branch(x): the residual connection that is as Lipschitz as its branch.

    The branch keeps the shape. A plain sum x + branch(x) has constant 2 for a 1-Lipschitz branch, and a stack of n
    of them 2^n.

    Args:
        branch: a module whose output has the shape of its input.
        weight: a at the start.
        learnable: whether a is trained, as the sigmoid of a parameter.
        device: where to create the parameter.
        dtype: type of the parameter.

    Examples:
        >>> import onelip
        >>> from onelip.layers import LipschitzResidual, MaxMin
        >>> onelip.lipschitz_bound(LipschitzResidual(MaxMin()), (4,)) <= 1 + 1e-6
        True
    """

    def __init__(
        self,
        branch: nn.Module,
        weight: float = 0.5,
        learnable: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(weight, learnable, device=device, dtype=dtype)
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The input and what the branch makes of it."""
        return super().forward(x, self.branch(x))


class LipschitzConcat(nn.Module):
    """The outputs of n branches of one input along `dim`, divided by sqrt(n).

    Examples:
        >>> import torch, onelip
        >>> from onelip.layers import Abs, LipschitzConcat, MaxMin
        >>> onelip.lipschitz_bound(LipschitzConcat(Abs(), MaxMin()), (4,)) <= 1 + 1e-6
        True
    """

    def __init__(self, *branches: nn.Module, dim: int = 1) -> None:
        super().__init__()
        if not branches:
            raise InvalidInputError("LipschitzConcat needs at least one branch")
        self.branches, self.dim = nn.ModuleList(branches), dim

    def forward(self, x: Tensor) -> Tensor:
        """All branches, side by side."""
        return torch.cat([branch(x) for branch in self.branches], self.dim) * (1 / math.sqrt(len(self.branches)))

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class UnitRowsLinear(nn.Module):
    """Scores <w_i, x> / ||w_i|| + b_i: a last layer each of whose scores is 1-Lipschitz.

    The layer as a whole is not: two scores differ with a constant ||w_i - w_j|| of up to 2 for unit rows, which
    `certify` computes for every pair instead of taking sqrt(2).

    Args:
        in_features: size of the last dimension of the input.
        out_features: number of scores.
        bias: whether a bias is added.
        device: where to create the parameters.
        dtype: type of the parameters.

    Examples:
        >>> import torch, onelip
        >>> from onelip.layers import UnitRowsLinear
        >>> onelip.certify(UnitRowsLinear(4, 3), torch.randn(2, 4)).radii.shape
        torch.Size([2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(self, in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Orthogonal rows and no bias."""
        draw_orthogonal(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_features) to (batch, out_features)."""
        check_numbers(self, x)
        if not x.dim() or x.shape[-1] != self.in_features:
            raise InvalidInputError(f"UnitRowsLinear expects (batch, {self.in_features}), got {tuple(x.shape)}")
        return F.linear(x, F.normalize(self.weight, dim=1), self.bias)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class FlipAverage(nn.Module):
    """(f(x) + f(x flipped)) / 2: the average of a network over an image and its mirror image, for evaluation.

    A flip is an isometry and an average of L-Lipschitz maps is L-Lipschitz, so the constant is that of f. `certify`
    sees both calls in the graph.

    Examples:
        >>> import torch
        >>> from onelip.layers import AOLLinear, FlipAverage
        >>> model = FlipAverage(torch.nn.Sequential(torch.nn.Flatten(), AOLLinear(12, 3)))
        >>> x = torch.rand(1, 3, 2, 2)
        >>> torch.allclose(model(x), model(x.flip(-1)))
        True
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images (batch, channels, height, width)."""
        return (self.network(x) + self.network(x.flip(-1))) * 0.5
