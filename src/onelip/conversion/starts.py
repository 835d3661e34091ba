"""Trained weights as the start of a 1-Lipschitz layer, where the method's transformation is a projection."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear


@torch.no_grad()
def start_from(layer: LipschitzConv2d | LipschitzLinear, plain: nn.Conv2d | nn.Linear, keep_weights: bool) -> str:
    """Take over the weights and the bias of `plain` where the method allows it; returns what was done, in words."""
    if not keep_weights:
        return "starts anew"
    if not layer.keeps_directions:
        return "starts anew: the method has no weights like these"
    weight = plain.weight
    if isinstance(layer, LipschitzConv2d):
        weight = unshuffled_kernel(weight, layer.stride[0])
    raw = layer.get_parameter("weight")
    if raw.shape != weight.shape:
        return "starts anew: the method's weights have another shape"
    # Of the size that the method's own start has: the transformation does not see it, its gradient does.
    raw.copy_(weight * (raw.norm() / weight.norm().clamp_min(torch.finfo(weight.dtype).tiny)))
    if layer.bias is not None and plain.bias is not None:
        layer.bias.copy_(plain.bias)
    return "starts from the trained weights, projected"


def unshuffled_kernel(kernel: Tensor, stride: int) -> Tensor:
    """The stride-1 kernel on pixel-unshuffled images that computes what `kernel` does with this stride.

    With padding k // 2, output i reads the pixels s i + t - k // 2 for taps t. Writing t - k // 2 = s a + r with
    0 <= r < s, that is pixel i + a of the unshuffled channel r: a kernel of the same side k suffices.
    """
    side = kernel.shape[-1]
    if stride == 1:
        return kernel
    half = side // 2
    # Pixels from -s half to s half + s - 1 belong to the taps a = -half .. half of the unshuffled kernel.
    before, after = (stride - 1) * half, stride * (half + 1) - 1 - (side - 1 - half)
    padded = F.pad(kernel, (before, after, before, after))
    return padded.unflatten(2, (side, stride)).unflatten(4, (side, stride)).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
