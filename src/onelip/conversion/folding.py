"""BatchNorm in evaluation is an affine map of each channel, which the convolution or matrix before it can absorb.

(W x + b - mean) g / sqrt(var + eps) + beta = W' x + b' with W' = W g / sqrt(var + eps), row by row. What is projected
then is the layer that the trained network applies, with the scales that BatchNorm gave to its channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


@torch.no_grad()
def fold_batch_norms(model: fx.GraphModule) -> dict[str, tuple[str, nn.Module]]:
    """Fold in place where it can be done; for each layer that absorbed one, the path of the BatchNorm and itself.

    It can where the layer is used once, and by the BatchNorm alone.
    """
    calls = [node for node in model.graph.nodes if node.op == "call_module"]
    modules = [model.get_submodule(str(node.target)) for node in calls]
    folded: dict[str, tuple[str, nn.Module]] = {}
    for node, norm in zip(calls, modules, strict=True):
        source = node.args[0]
        if type(norm) not in BATCH_NORMS or not isinstance(source, fx.Node) or source.op != "call_module":
            continue
        layer = model.get_submodule(str(source.target))
        used_once = len(source.users) == 1 and modules.count(layer) == 1 and modules.count(norm) == 1
        if used_once and _absorbs(layer, norm):
            layer.weight, layer.bias = _fused(layer, norm)
            folded[str(source.target)] = str(node.target), norm
            node.replace_all_uses_with(source)
            model.graph.erase_node(node)
    return folded


def _absorbs(layer: nn.Module, norm: Any) -> bool:
    if norm.running_mean is None or type(layer) not in (*_CONVOLUTIONS, nn.Linear):
        return False
    width = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels  # pyright: ignore - of all four
    grouped = isinstance(layer, nn.ConvTranspose2d) and layer.groups > 1  # its weight lists outputs group by group
    return width == norm.num_features and not grouped


def _fused(layer: Any, norm: Any) -> tuple[nn.Parameter, nn.Parameter]:
    fixed = norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    if isinstance(layer, nn.Linear):
        return fuse_linear_bn_weights(layer.weight, layer.bias, *fixed)
    return fuse_conv_bn_weights(layer.weight, layer.bias, *fixed, isinstance(layer, nn.ConvTranspose2d))
