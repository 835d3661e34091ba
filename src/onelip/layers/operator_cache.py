"""Evaluation once more: what a layer has made of its parameters, while they stay what they were, and its last pass.

Most of what a small layer does around its convolution asks questions with the answers of the last pass: is the input
allowed, which form suits its size, what stands around the core. A `CachedPass` stands for these answers. What may have
changed since is looked at each time: the mode, the parameters, and whoever watches the operations.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from operator import is_
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.contract import Request
from onelip.layers.memory_format import keeps_format, memory_format_of
from onelip.layers.operator_sources import operators_of
from onelip.layers.operators import Kernel, Operator
from onelip.layers.snapshot import Snapshot
from onelip.linalg.convolution import same_convolution
from onelip.linalg.devices import is_pretended
from onelip.linalg.fourier import Size
from onelip.linalg.tensor_modes import forms_are_off, may_cache_tensors, ordinary_tensors

if TYPE_CHECKING:
    from onelip.layers.layer import LipschitzLayer

SMALL = 2**15
"""Numbers of a batch of images up to which one call of torch pads them faster than copies of whole pixels do."""


_SIZES_KEPT = 4
"""Input sizes for which a size-dependent layer keeps its transformed parameters at once."""


def cached_operator(layer: LipschitzLayer, key: Size | None) -> Operator:
    """The operator of evaluation for this core size, made anew where the parameters have changed."""
    cached, snapshot = layer._cache.get(key), layer._cached_for
    make = partial(operators_of, [layer], Request(key))
    if torch.compiler.is_compiling():
        # A compiled program fixes what it finds. An exporter runs this code, so that it can look.
        compiled = torch.compiler.is_dynamo_compiling()
        if cached is not None and snapshot is not None and (compiled or snapshot.is_current()):
            return cached
        return make()[0]
    if not layer.has_own_parameters():
        return make()[0]
    tensors = tuple(layer.tensors_to_transform().values())
    current = snapshot is not None and snapshot.is_current(tensors)
    if current and cached is not None:
        _warn_of_training(layer, tensors)
        return cached
    if not may_cache_tensors():
        return make()[0]
    with ordinary_tensors():
        if not current:  # looked at first: what another thread writes meanwhile makes the snapshot an old one
            layer._cache, layer._cached_for = {}, Snapshot(tensors)
        cache = layer._cache
        operator = make()[0]
    while len(cache) >= _SIZES_KEPT:
        cache.pop(next(iter(cache)))
    cache[key] = operator
    return operator


def _warn_of_training(layer: LipschitzLayer, tensors: Sequence[Tensor]) -> None:
    """Say so where an optimiser changes the bias while the weights, which ask for a gradient, get none here."""
    if layer.bias is None or not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
        return
    before, layer._bias_version = layer._bias_version, layer.bias._version
    if before is not None and before != layer._bias_version:
        warnings.warn(
            "a layer is trained in evaluation mode, where its weights get no gradients; call model.train() first",
            stacklevel=2,
        )


def repeated_pass(layer: LipschitzLayer, x: Tensor) -> CachedPass | None:
    """The last pass in evaluation, if one on x would be like it."""
    if torch.compiler.is_compiling() or (last := layer._cached_pass) is None or not last.serves(layer, x):
        return None
    return last


def remember_pass(layer: LipschitzLayer, x: Tensor, operator: Operator, *, kernel_alone: bool = False) -> None:
    """Keep what x, which the layer allows, is mapped by; or only by, if the operator is a kernel alone."""
    if layer.training or not watched_by_nobody(x) or x.dim() < 2 or not x.numel():
        return
    snapshot = layer._cached_for
    if snapshot is not None and any(operator is cached for cached in layer._cache.values()):
        layer._cached_pass = CachedPass(layer, x, operator, snapshot, kernel_alone)


class CachedPass:
    """The operator that a layer in evaluation applies to inputs like x, of its parameters as the snapshot has them."""

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
