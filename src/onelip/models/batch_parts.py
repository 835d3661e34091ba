"""Evaluation on CPUs by stages: as many images at a time as stay in the processor's cache.

A batch of 256 images with 16 channels of 32 x 32 pixels is 16 MB. Layer by layer, each such tensor is written to memory
and read again, and the allocator gives the pages back to the system in between, which clears them anew. A stage, the
layers that work on images of one size, is therefore applied to a part of the batch after the other. Later stages
have smaller images and larger weights: they take larger parts.

Fused networks consist of torch's own convolutions, which pad a circle slowly: `apply_modules` pads for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_internals

from onelip.linalg.convolution import same_convolution
from onelip.linalg.devices import is_cpu
from onelip.linalg.tensor_modes import wants_plain_operations

SMALL = 2**14
"""Numbers of a batch up to which looking for hooks costs more than it brings."""

BYTES_AT_ONCE = 2**22
"""A stage of a network is evaluated for as many images at a time as have image tensors of this size."""

Stage = Callable[[Tensor], Tensor]


def may_be_split(network: nn.Module, x: Tensor, bytes_of_image: int) -> bool:
    """Whether x is more than one part, and nobody could tell that its images are evaluated in parts but by the time."""
    if not _evaluates_on_cpu(network, x):  # first: compilers make constants of sizes that are looked at
        return False
    return x.dim() == 4 and len(x) > _images_at_once(bytes_of_image) and not _has_hooks_inside(network)


def pays_to_look_inside(network: nn.Module, x: Tensor) -> bool:
    """Whether `apply_modules` may stand for the pass of a network, and x is so large that it gains something."""
    return _evaluates_on_cpu(network, x) and x.numel() > SMALL and not _has_hooks_inside(network)


def _evaluates_on_cpu(network: nn.Module, x: Tensor) -> bool:
    """Without gradients, and without a tracer."""
    return not (network.training or torch.is_grad_enabled() or wants_plain_operations()) and is_cpu(x.device)


def _images_at_once(bytes_of_image: int) -> int:
    return max(1, BYTES_AT_ONCE // bytes_of_image)


def has_hooks(*modules: nn.Module) -> bool:
    """Whether someone looks at what one of these modules, or any module at all, gets or gives."""
    everywhere = module_internals._global_forward_hooks or module_internals._global_forward_pre_hooks
    return bool(everywhere) or any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def _has_hooks_inside(network: nn.Module) -> bool:
    """Hooks of parts are to see the whole batch. The network's own do anyway."""
    return has_hooks(*(part for part in network.modules() if part is not network))


def apply_in_parts(stage: Stage, x: Tensor, bytes_of_image: int) -> Tensor:
    """stage(x), for as many images at a time as `bytes_at_once` holds."""
    images = _images_at_once(bytes_of_image)
    if len(x) <= images:
        return stage(x)
    return torch.cat([stage(part) for part in x.split(images)])


def apply_modules(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Modules in a row, the plain circular convolutions of a fused network by `same_convolution`.

    torch pads a circle number by number and keeps an image's format; here whole pixels are copied.
    """
    for module in modules:
        if "forward" in vars(module):  # replaced on the instance
            x = module(x)
        elif type(module) is nn.Sequential:
            x = apply_modules(module, x)
        elif type(module) is nn.Conv2d and _keeps_a_circle(module):
            x = same_convolution(x, module.weight, module.bias, "circular")
        else:
            x = module(x)
    return x


def _keeps_a_circle(conv: nn.Conv2d) -> bool:
    """Whether it is a circular convolution with as many outputs as inputs and odd sides, and has something to pad."""
    sides = tuple(2 * pad + 1 for pad in conv.padding if isinstance(pad, int))
    plain = conv.padding_mode == "circular" and conv.stride == conv.dilation == (1, 1) and conv.groups == 1
    return plain and conv.kernel_size == sides != (1, 1)
