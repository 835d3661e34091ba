"""Fused copies of whole models: no parameter transformation left, ready for deployment and `torch.export`.

    fused = fuse(ConvNet("bcop", "XS", 10))     # plain nn.Conv2d and nn.Linear where the method allows it

Layers that act in the frequency domain are fused for one image size, namely the one they see in a forward
pass on an image of `input_shape`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers.blocks.relu_forms import relu_form
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.layer import LipschitzLayer
from onelip.linalg.fourier import Size


def fuse(
    model: nn.Module, input_shape: Sequence[int] | None = None, *, activations: Literal["keep", "relu"] = "keep"
) -> nn.Module:
    """A copy of `model` in evaluation mode where every `LipschitzLayer` is replaced by `layer.fuse(size)`.

    `input_shape` is the shape of one input without the batch, such as (3, 32, 32); by default `model.input_shape`
    if there is one. Without either, only layers that do not depend on the image size can be fused. Outputs
    equal those of `model.eval()`. The fused layers are frozen: training them would void their guarantee.
    With `activations="relu"`, MaxMin and Abs are written by ReLUs and sums, for verifiers that know nothing else.

    Examples:
        >>> import torch, onelip
        >>> from onelip.layers import AOLConv2d, MaxMin
        >>> onelip.fuse(torch.nn.Sequential(AOLConv2d(2, 4, 3), MaxMin()), (2, 8, 8))
        Sequential(
          (0): Conv2d(2, 4, kernel_size=(3, 3), ...)
          (1): MaxMin(dim=1)
        )
    """
    if activations not in ("keep", "relu"):
        raise InvalidInputError(f"activations={activations!r} is not known, use keep or relu")
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"fuse takes a torch.nn.Module, got a {type(model).__name__}")
    fused = copy.deepcopy(model).eval()
    shape = getattr(model, "input_shape", None) if input_shape is None else input_shape
    sizes = {} if shape is None else _sizes_seen(fused, tuple(shape))
    if isinstance(fused, LipschitzLayer):
        return _fused_layer(fused, "the model", sizes)
    replacements: dict[LipschitzLayer, nn.Module] = {}
    # A layer that occurs under several names is replaced by one fused layer under all of them.
    for name, module in list(fused.named_modules(remove_duplicate=False)):
        if isinstance(module, LipschitzLayer):
            if module not in replacements:
                replacements[module] = _fused_layer(module, name, sizes)
            fused.set_submodule(name, replacements[module])
        elif activations == "relu" and (by_relu := relu_form(module)) is not None:
            fused.set_submodule(name, by_relu)
    return fused


def _fused_layer(layer: LipschitzLayer, name: str, sizes: dict[nn.Module, set[Size]]) -> nn.Module:
    seen = sorted(sizes.get(layer, ()))
    if len(seen) > 1:
        raise InvalidInputError(
            f"{name} is used on images of several sizes ({', '.join(f'{h} x {w}' for h, w in seen)}): "
            "a layer is fused for one size, use one layer for each"
        )
    if not seen and layer.size_dependent:
        raise InvalidInputError(
            f"{name} ({type(layer).__name__}) can only be fused for a known image size: "
            "pass input_shape=(channels, height, width) of an input that reaches it"
        )
    return layer.fuse(seen[0] if seen else None)


def _sizes_seen(model: nn.Module, input_shape: tuple[int, ...]) -> dict[nn.Module, set[Size]]:
    """Height and width of the inputs of every convolution in a forward pass on zeros."""
    sizes: dict[nn.Module, set[Size]] = {}

    def record(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        height, width = arguments[0].shape[-2:]
        sizes.setdefault(layer, set()).add((int(height), int(width)))

    layers = [module for module in model.modules() if isinstance(module, LipschitzConv2d)]
    handles = [layer.register_forward_pre_hook(record) for layer in layers]
    reference = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    try:
        with torch.no_grad():
            model(reference.new_zeros((1, *input_shape)))
    finally:
        for handle in handles:
            handle.remove()
    return sizes
