"""Evaluation once more: the pass of a layer for inputs like the last one, while its parameters stay what they were.

Most of what a small layer does around its convolution asks questions with the answers of the last pass: is the input
allowed, which form suits its size, what stands around the core. A `CachedPass` stands for these answers. What may have
changed since is looked at each time: the mode, the parameters, and whoever watches the operations.
"""

from __future__ import annotations

from operator import is_

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.memory_format import keeps_format, memory_format_of
from onelip.layers.operators import Kernel, Operator
from onelip.layers.snapshot import Snapshot
from onelip.linalg.convolution import same_convolution
from onelip.linalg.devices import is_pretended
from onelip.linalg.tensor_modes import forms_are_off

SMALL = 2**15
"""Numbers of a batch of images up to which one call of torch pads them faster than copies of whole pixels do."""


class CachedPass:
    """What a layer in evaluation applies to inputs like x: an operator of its parameters as the snapshot has them."""

    def __init__(self, layer: nn.Module, x: Tensor, operator: Operator, snapshot: Snapshot, kernel_alone: bool) -> None:
        self.operator, self._snapshot = operator, snapshot
        self.kernel = operator if kernel_alone and isinstance(operator, Kernel) else None
        self._tensors = (*layer._parameters.values(), *layer._buffers.values())
        self._inputs = x.shape[1:], x.dtype, x.device

    def serves(self, layer: nn.Module, x: Tensor) -> bool:
        """Whether the layer would do now what it did then."""
        tensors = (*layer._parameters.values(), *layer._buffers.values())
        return (
            not layer.training
            and layer.__dict__.keys().isdisjoint(("operator", "apply_to"))  # replaced on the instance
            and watched_by_nobody(x)
            and (x.shape[1:], x.dtype, x.device) == self._inputs
            and len(tensors) == len(self._tensors)
            and all(map(is_, tensors, self._tensors))
            and self._snapshot.is_current()
        )


def watched_by_nobody(x: Tensor) -> bool:
    """Whether x is a plain tensor and nobody differentiates, records or converts what is done with it."""
    return (
        type(x) is Tensor
        and not torch.is_grad_enabled()
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
        and not torch._C._is_any_autocast_enabled()
        and not torch._C._are_functorch_transforms_active()
        and not forms_are_off()
        and not is_pretended()
    )


def convolved(x: Tensor, operator: Kernel, bias: Tensor | None) -> Tensor:
    """`operator.apply` of images that nobody watches, in their memory format unless another is faster and allowed."""
    kernel, mode, keeps = operator.kernel, operator.padding_mode, keeps_format()
    pad_high, pad_wide = kernel.shape[-2] // 2, kernel.shape[-1] // 2
    wraps_twice = mode == "circular" and (pad_high > x.shape[-2] or pad_wide > x.shape[-1])
    may_be_faster = x.numel() > SMALL and (x.stride(1) == 1 or not keeps)
    if wraps_twice or may_be_faster or x.device.type != "cpu":
        y = same_convolution(x, kernel, bias, mode)
    elif mode == "zeros":
        y = F.conv2d(x, kernel, bias, padding=(pad_high, pad_wide))
    elif pad_high or pad_wide:
        y = F.conv2d(F.pad(x, (pad_wide, pad_wide, pad_high, pad_high), mode="circular"), kernel, bias)
    else:
        y = F.conv2d(x, kernel, bias)
    if not keeps:
        return y
    return y.contiguous() if x.is_contiguous() else y.contiguous(memory_format=memory_format_of(x))
