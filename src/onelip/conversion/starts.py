"""Trained weights as the start of a 1-Lipschitz layer, where the method's transformation is a projection."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear
from onelip.linalg.fourier import Size


@torch.no_grad()
def start_from(layer: LipschitzConv2d | LipschitzLinear, plain: nn.Conv2d | nn.Linear, keep_weights: bool) -> str:
    """Take over the weights and the bias of `plain` where the method allows it; returns what was done, in words."""
    if not keep_weights:
        return "starts anew"
    if not layer.keeps_directions:
        return "starts anew: the method has no weights like these"
    weight = plain.weight
    if isinstance(layer, LipschitzConv2d):
        if layer.stride != (1, 1) and layer.dilation != (1, 1):
            return "starts anew: a dilation counts unshuffled pixels behind a stride"
        weight = unshuffled_kernel(weight, layer.stride)
        weight = weight.unflatten(0, (layer.groups, -1)) if layer.groups > 1 else weight
    raw = layer.get_parameter("weight")
    if raw.shape != weight.shape:
        return "starts anew: the method's weights have another shape"
    # Of the size that the method's own start has: the transformation does not see it, its gradient does.
    raw.copy_(weight * (raw.norm() / weight.norm().clamp_min(torch.finfo(weight.dtype).tiny)))
    if layer.bias is not None and plain.bias is not None:
        layer.bias.copy_(plain.bias)
    return "starts from the trained weights, projected"


def unshuffled_kernel(kernel: Tensor, stride: Size) -> Tensor:
    """The stride-1 kernel on pixel-unshuffled images that computes what `kernel` does with this stride.

    With the padding of "same", h = (k - 1) // 2 before the image, output i reads the pixels s i + t - h for taps t.
    Writing t - h = s a + r with 0 <= r < s, that is pixel i + a of the unshuffled channel r: a kernel of the same side
    k suffices. Its taps a = -h .. k - 1 - h belong to the pixels from -s h to s (k - h) - 1.
    """
    sides: list[int] = []
    for k, s in zip(reversed(kernel.shape[-2:]), reversed(stride), strict=True):
        before = (s - 1) * ((k - 1) // 2)
        sides += [before, (s - 1) * k - before]
    padded = F.pad(kernel, sides).unflatten(3, (-1, stride[1])).unflatten(2, (-1, stride[0]))
    return padded.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
