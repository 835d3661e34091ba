"""Trained weights as the start of a 1-Lipschitz layer, where the method's transformation is a projection."""

from __future__ import annotations

import torch
from torch import nn

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
        weight = weight.unflatten(0, (layer.groups, -1)) if layer.groups > 1 else weight
    raw = layer.get_parameter("weight")
    if raw.shape != weight.shape:
        return "starts anew: the method's weights have another shape"
    # Of the size that the method's own start has: the transformation does not see it, its gradient does.
    raw.copy_(weight * (raw.norm() / weight.norm().clamp_min(torch.finfo(weight.dtype).tiny)))
    if layer.bias is not None and plain.bias is not None:
        layer.bias.copy_(plain.bias)
    return "starts from the trained weights, projected"
