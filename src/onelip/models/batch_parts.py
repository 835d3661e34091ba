"""Evaluation on CPUs by stages: as many images at a time as stay in the processor's cache.

A batch of 256 images with 16 channels of 32 x 32 pixels is 16 MB. Layer by layer, each such tensor is written to memory
and read again, and the allocator gives the pages back to the system in between, which clears them anew. A stage, the
layers that work on images of one size, is therefore applied to a part of the batch after the other. Later stages
have smaller images and larger weights: they take larger parts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_internals

from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.tensor_modes import is_traced
from onelip.linalg.thresholds import thresholds

Stage = Callable[[Tensor], Tensor]


def may_be_split(network: nn.Module, x: Tensor, bytes_of_image: int) -> bool:
    """Whether x is more than one part, and nobody could tell that its images are evaluated in parts but by the time."""
    if network.training or torch.is_grad_enabled() or is_traced():
        return False
    return (
        suits_cpu(x.device)
        and x.dim() == 4
        and len(x) > _images_at_once(bytes_of_image)
        and not _has_hooks_inside(network)
    )


def _images_at_once(bytes_of_image: int) -> int:
    return max(1, thresholds().bytes_at_once // bytes_of_image)


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
