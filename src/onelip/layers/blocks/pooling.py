"""Pooling that is 1-Lipschitz and wastes nothing: windows of n pixels that do not overlap, scaled by sqrt(n).

The mean of n numbers has norm 1 / sqrt(n), so plain average pooling shrinks differences by that factor; sum / sqrt(n)
has norm exactly 1. The Euclidean norm of a window is 1-Lipschitz by the triangle inequality.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.arguments import check_numbers, pair
from onelip.proofs.bounded import BoundedModule
from onelip.proofs.layer_bound import Arithmetic, LayerBound, RoundingError, exact_bound, linear_bound, relative_bound
from onelip.proofs.proven import SAFETY


class ScaledAvgPool2d(BoundedModule):
    """sum of a k x k window / k: average pooling times k, a 1-Lipschitz map with norm exactly 1.

    Windows lie side by side (stride k); the image must consist of whole windows.

    Args:
        kernel_size: side of the window, or its height and width.

    Examples:
        >>> import torch
        >>> from onelip.layers import ScaledAvgPool2d
        >>> ScaledAvgPool2d(2)(torch.ones(1, 1, 4, 4))[0, 0]
        tensor([[2., 2.],
                [2., 2.]])
    """

    repr_format = "kernel_size={0.kernel_size}"

    def __init__(self, kernel_size: int | tuple[int, int]) -> None:
        super().__init__()
        self.kernel_size = pair(self, "kernel_size", kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, channels, height / k, width / k)."""
        check_numbers(self, x)
        _check_whole(self, x.shape[-2:], self.kernel_size)
        return F.avg_pool2d(x, self.kernel_size) * math.sqrt(math.prod(self.kernel_size))

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Orthogonal rows: one window each."""
        return _scaled_mean_bound(math.prod(self.kernel_size), input_shape)


class ScaledAdaptiveAvgPool2d(BoundedModule):
    """`ScaledAvgPool2d` to a given output size, which has to divide the image; (1, 1) pools globally.

    Args:
        output_size: side of the output, or its height and width.

    Examples:
        >>> import torch
        >>> from onelip.layers import ScaledAdaptiveAvgPool2d
        >>> ScaledAdaptiveAvgPool2d(1)(torch.ones(1, 1, 4, 4))
        tensor([[[[4.]]]])
    """

    repr_format = "output_size={0.output_size}"

    def __init__(self, output_size: int | tuple[int, int] = 1) -> None:
        super().__init__()
        self.output_size = pair(self, "output_size", output_size)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, channels, *output_size)."""
        check_numbers(self, x)
        window = _window_for(self, x.shape[-2:], self.output_size)
        return F.avg_pool2d(x, window) * math.sqrt(math.prod(window))

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Orthogonal rows: one window each."""
        return _scaled_mean_bound(math.prod(_window_for(self, input_shape[-2:], self.output_size)), input_shape)


class ScaledMaxPool2d(BoundedModule):
    """Max pooling divided by its constant: with windows of k that start every s pixels, sqrt(ceil(k / s)) per axis.

    |max a - max b| <= ||a - b|| in every window, and a pixel lies in at most ceil(k / s) windows along each axis. Where
    windows do not overlap the constant is 1, and this is `nn.MaxPool2d`.

    Args:
        kernel_size: side of the window, or its height and width.
        stride: pixels between windows; by default they lie side by side.
        padding: pixels around the image that no maximum is taken of.

    Examples:
        >>> import onelip
        >>> from onelip.layers import ScaledMaxPool2d
        >>> onelip.lipschitz_bound(ScaledMaxPool2d(3, stride=2), (1, 8, 8)) <= 1 + 1e-6
        True
    """

    repr_format = "kernel_size={0.kernel_size}, stride={0.stride}, padding={0.padding}"

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        super().__init__()
        self.kernel_size = pair(self, "kernel_size", kernel_size)
        self.stride = self.kernel_size if stride is None else pair(self, "stride", stride)
        self.padding = pair(self, "padding", padding, 0)
        self.scale = 1 / math.sqrt(math.prod(-(-k // s) for k, s in zip(self.kernel_size, self.stride, strict=True)))

    def forward(self, x: Tensor) -> Tensor:
        """The largest pixel of each window, scaled."""
        check_numbers(self, x)
        y = F.max_pool2d(x, self.kernel_size, self.stride, self.padding)
        return y if self.scale == 1 else y * self.scale

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """One product per window, of a scale that is rounded too."""
        return exact_bound() if self.scale == 1 else relative_bound(SAFETY, 4.0, math.prod(input_shape))


class L2NormPool2d(BoundedModule):
    """sqrt(sum of x^2 over a k x k window + eps): the norm of each window, made smooth at 0 by eps.

    It is 1-Lipschitz for every eps >= 0: its gradient is the window divided by something no smaller than its norm.

    Args:
        kernel_size: side of the window, or its height and width.
        eps: added to the sum of squares.

    Examples:
        >>> import torch
        >>> from onelip.layers import L2NormPool2d
        >>> L2NormPool2d(2)(torch.ones(1, 1, 2, 2)).round(decimals=2)
        tensor([[[[2.]]]])
    """

    repr_format = "kernel_size={0.kernel_size}, eps={0.eps}"

    def __init__(self, kernel_size: int | tuple[int, int], eps: float = 1e-6) -> None:
        super().__init__()
        self.kernel_size = pair(self, "kernel_size", kernel_size)
        self.eps = _smoothing(self, eps)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, channels, height / k, width / k)."""
        check_numbers(self, x)
        _check_whole(self, x.shape[-2:], self.kernel_size)
        return _norms(x, self.kernel_size, self.eps)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """One norm per window."""
        return _norms_bound(self.kernel_size, self.eps, input_shape)


class AdaptiveL2NormPool2d(BoundedModule):
    """`L2NormPool2d` to a given output size, which has to divide the image; (1, 1) is the norm of each channel.

    Args:
        output_size: side of the output, or its height and width.
        eps: added to the sum of squares.

    Examples:
        >>> import torch
        >>> from onelip.layers import AdaptiveL2NormPool2d
        >>> AdaptiveL2NormPool2d(1)(torch.ones(1, 1, 4, 4)).round(decimals=2)
        tensor([[[[4.]]]])
    """

    repr_format = "output_size={0.output_size}, eps={0.eps}"

    def __init__(self, output_size: int | tuple[int, int] = 1, eps: float = 1e-6) -> None:
        super().__init__()
        self.output_size = pair(self, "output_size", output_size)
        self.eps = _smoothing(self, eps)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, channels, *output_size)."""
        check_numbers(self, x)
        return _norms(x, _window_for(self, x.shape[-2:], self.output_size), self.eps)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """One norm per window."""
        return _norms_bound(_window_for(self, input_shape[-2:], self.output_size), self.eps, input_shape)


def _norms(x: Tensor, window: tuple[int, int], eps: float) -> Tensor:
    # The sum as a mean times the number: avg_pool2d is the pooling that every backend has. A power, because autograd
    # keeps the result of a root, to which nobody may write then.
    return (F.avg_pool2d(x.square(), window) * math.prod(window) + eps).pow(0.5)


def _norms_bound(window: tuple[int, int], eps: float, input_shape: tuple[int, ...]) -> LayerBound:
    """All terms are positive: the relative error is that of the sum, halved by the root.

    Squares that underflow are each off by the smallest normal number t, which a root turns into sqrt(n t).
    """
    terms = math.prod(window)
    outputs = math.prod(input_shape) // terms
    smooth = relative_bound(1.0, terms + 6.0, outputs, offset=math.sqrt(eps * outputs) * SAFETY)
    inner = smooth.rounding
    assert inner is not None

    def rounding(arithmetic: Arithmetic) -> RoundingError:
        error = inner(arithmetic)
        lost = math.sqrt(4 * terms * arithmetic.tiny * outputs)
        return RoundingError(error.slope, error.constant + lost)

    return LayerBound(smooth.lipschitz, smooth.offset, rounding, peak=lambda size: size.square() + eps)


def _smoothing(module: nn.Module, eps: float) -> float:
    if not 0 <= eps < math.inf:
        raise InvalidInputError(f"{type(module).__name__}: eps={eps} must be a number of at least 0")
    return eps


def _scaled_mean_bound(window: int, input_shape: tuple[int, ...]) -> LayerBound:
    return linear_bound(SAFETY, SAFETY, window + 3, math.prod(input_shape) // window)


def _window_for(module: nn.Module, size: torch.Size | tuple[int, ...], outputs: tuple[int, int]) -> tuple[int, int]:
    _check_whole(module, size, outputs)
    return size[0] // outputs[0], size[1] // outputs[1]


def _check_whole(module: nn.Module, size: torch.Size | tuple[int, ...], parts: tuple[int, int]) -> None:
    if len(size) < 2 or size[0] % parts[0] or size[1] % parts[1]:
        raise InvalidInputError(
            f"{type(module).__name__}: an image of {' x '.join(map(str, size))} does not divide by "
            f"{parts[0]} x {parts[1]}; pad or crop it first"
        )
