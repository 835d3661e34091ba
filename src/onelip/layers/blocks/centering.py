"""Normalisations that shift, and never stretch: what takes the place of BatchNorm and LayerNorm.

A shift has Lipschitz constant 1, and subtracting the mean of the features of one sample is an orthogonal projection.
Division by a standard deviation is what makes ordinary normalisations expansive, so these layers do not divide, but for
`BatchLipNorm`, which only ever shrinks.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.arguments import check_numbers, check_positive
from onelip.proofs.bounded import BoundedModule
from onelip.proofs.layer_bound import LayerBound, linear_bound
from onelip.proofs.linear_bounds import bias_norm
from onelip.proofs.proven import SAFETY

_SHIFT_TERMS = 5
"""Roundings of x - mean + bias, of a root and a reciprocal, and of the product with them."""


class BatchCentering(BoundedModule):
    """x - mean + bias, with the mean of each channel over batch and positions; in evaluation the running mean.

    For a fixed batch of other samples the shift in training depends on the sample too, by a share of 1 / batch; in
    evaluation the numbers are fixed, and the constant is exactly 1.

    Args:
        num_features: channels, dimension 1 of the input.
        momentum: weight of the newest batch in the running mean; None averages all batches equally, as torch does.
        affine: learn a bias per channel.
        device: where to create the parameters.
        dtype: type of the parameters.

    Examples:
        >>> import torch
        >>> from onelip.layers import BatchCentering
        >>> bool(BatchCentering(3)(torch.randn(8, 3, 4, 4)).mean((0, 2, 3)).abs().max() < 1e-6)
        True
    """

    running_mean: Tensor
    num_batches_tracked: Tensor
    has_variance: ClassVar[bool] = False
    """Whether there is a running variance too."""

    def __init__(
        self,
        num_features: int,
        momentum: float | None = 0.1,
        affine: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(self, num_features=num_features)
        if momentum is not None and not 0 < momentum <= 1:
            raise InvalidInputError(f"{type(self).__name__}: momentum={momentum} must be in (0, 1] or None")
        self.num_features, self.momentum = num_features, momentum
        self.bias = nn.Parameter(torch.zeros(num_features, device=device, dtype=dtype)) if affine else None
        self.register_buffer("running_mean", torch.zeros(num_features, device=device, dtype=dtype))
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.int64, device=device))
        if self.has_variance:
            self.register_buffer("running_var", torch.ones(num_features, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, ...) to the same shape."""
        self._check(x)
        if self.training:
            mean = x.mean([0, *range(2, x.dim())])
            self._track(running_mean=mean)
        else:
            mean = self.running_mean
        return x + _per_channel(self._shift(mean), x)

    def _check(self, x: Tensor) -> None:
        check_numbers(self, x)
        if x.dim() < 2 or x.shape[1] != self.num_features:
            raise InvalidInputError(
                f"{type(self).__name__} expects (batch, {self.num_features}, ...), got {tuple(x.shape)}"
            )

    def _shift(self, mean: Tensor) -> Tensor:
        return -mean if self.bias is None else self.bias - mean

    @torch.no_grad()
    def _track(self, **newest: Tensor) -> None:
        """Move running statistics towards those of the newest batch; inside of torch.func nothing may be written."""
        if torch._C._are_functorch_transforms_active():
            return
        self.num_batches_tracked += 1
        weight: Any = 1.0 / self.num_batches_tracked if self.momentum is None else self.momentum
        for name, statistic in newest.items():
            running = self.get_buffer(name)
            running.lerp_(statistic.to(running.dtype), weight)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """A shift by fixed numbers: constant 1. Bias and mean may cancel, their roundings do not."""
        return linear_bound(1.0, 1.0, _SHIFT_TERMS, math.prod(input_shape), self._shift_norm(input_shape))

    def _shift_norm(self, input_shape: tuple[int, ...], factor: float = 1.0) -> float:
        places = math.prod(input_shape[1:])
        return (bias_norm(self.running_mean, places) * factor + bias_norm(self.bias, places)) * SAFETY

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.num_features}, momentum={self.momentum}, affine={self.bias is not None}"


class BatchLipNorm(BatchCentering):
    """(x - mean) / max(1, largest standard deviation of a channel) + bias: centred, and shrunk where it is wide.

    One factor of at most 1 for all channels keeps the layer a multiple of an isometry.

    Args:
        num_features: channels, dimension 1 of the input.
        momentum: weight of the newest batch in the running statistics; None averages all batches equally.
        affine: learn a bias per channel.
        device: where to create the parameters.
        dtype: type of the parameters.

    Examples:
        >>> import torch
        >>> from onelip.layers import BatchLipNorm
        >>> bool(BatchLipNorm(3)(10 * torch.randn(8, 3, 4, 4)).std() < 2)
        True
    """

    running_var: Tensor
    has_variance = True

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, ...) to the same shape."""
        self._check(x)
        mean, variance = self.running_mean, self.running_var
        if self.training:
            positions = [0, *range(2, x.dim())]
            mean, variance = x.mean(positions), x.var(positions, correction=0)
            self._track(running_mean=mean, running_var=variance)
        y = (x - _per_channel(mean, x)) * _shrinking(variance)
        return y if self.bias is None else y + _per_channel(self.bias, x)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """One factor for all channels."""
        factor = float(_shrinking(self.running_var.double())) * SAFETY
        return linear_bound(factor, 1.0, _SHIFT_TERMS, math.prod(input_shape), self._shift_norm(input_shape, factor))


class LayerCentering(BoundedModule):
    """x minus the mean of its features: the projection on the vectors that sum to 0, in each group of `dims`.

    Args:
        dims: the dimensions that the mean is over, counted without the batch; by default all of them.

    Examples:
        >>> import torch
        >>> from onelip.layers import LayerCentering
        >>> bool(LayerCentering()(torch.randn(2, 6)).sum(1).abs().max() < 1e-5)
        True
    """

    def __init__(self, dims: tuple[int, ...] | None = None) -> None:
        super().__init__()
        if dims is not None and (not dims or any(type(dim) is not int for dim in dims)):
            raise InvalidInputError(f"LayerCentering: dims={dims!r} must be a tuple of integers or None for all")
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, ...) to the same shape."""
        check_numbers(self, x)
        return x - x.mean(self._dims(x.dim() - 1), keepdim=True)

    def _dims(self, count: int) -> list[int]:
        return list(range(1, count + 1)) if self.dims is None else [dim % count + 1 for dim in self.dims]

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """A projection: constant 1. Entrywise it is I - 1/n, whose magnitudes have norm at most 2."""
        group = math.prod(input_shape[dim - 1] for dim in self._dims(len(input_shape)))
        return linear_bound(1.0, 2.0, group + 2, math.prod(input_shape))

    def extra_repr(self) -> str:
        """The argument."""
        return "" if self.dims is None else f"dims={self.dims}"


def _per_channel(numbers: Tensor, x: Tensor) -> Tensor:
    return numbers.reshape(-1, *[1] * (x.dim() - 2))


def _shrinking(variance: Tensor) -> Tensor:
    return variance.amax().sqrt().clamp_min(1.0).reciprocal()
