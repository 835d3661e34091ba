"""Torch's modules and what takes their place, that of subclasses too unless they compute something else.

A rule returns the new module and a note, returns None where the module may stay as it is, and raises
`InvalidInputError` where there is no counterpart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from onelip.conversion.folding import BATCH_NORMS
from onelip.errors import InvalidInputError
from onelip.layers import (
    Abs,
    BatchCentering,
    GroupSort,
    LayerCentering,
    LipschitzPReLU,
    MaxMin,
    ScaledAdaptiveAvgPool2d,
    ScaledAvgPool2d,
    ScaledMaxPool2d,
    create_conv,
    create_conv1d,
    create_conv3d,
    create_conv_transpose,
    create_linear,
    get_method,
)
from onelip.layers.shapes import LipschitzConv2d, LipschitzLinear

ACTIVATIONS: dict[str, tuple[Callable[[int], nn.Module], int]] = {
    "maxmin": (MaxMin, 2),
    "groupsort4": (lambda dim: GroupSort(4, dim), 4),
    "abs": (lambda _: Abs(), 1),
}
"""What may replace an activation, by its dimension, and how many channels it sorts at once; "keep" leaves those with
constant 1 as they are."""

Replacement = tuple[nn.Module, str]


@dataclass(frozen=True)
class Options:
    """The arguments of `convert` that rules look at."""

    method: str
    activation: str
    keep_weights: bool
    dim: int = 1
    """Where the channels are that an activation sorts."""
    widths: frozenset[int] = frozenset()
    """How many of them there are, as far as known."""


def replacement(module: nn.Module, options: Options) -> Replacement | None:
    """What takes the place of a module, and a note; None where it may stay."""
    kind = kind_of(module)
    if kind is None:
        raise InvalidInputError(_HINTS.get(type(module), "no rule for this module; it is left as it is"))
    return RULES[kind](module, options)


def kind_of(module: nn.Module) -> type[nn.Module] | None:
    """The class that there is a rule for: the module's, or one that it inherits all of its computation from."""
    own = type(module)
    kind = next((each for each in own.__mro__ if each in RULES), None)
    methods = ("forward", "_conv_forward", "__call__")
    same = all(getattr(own, name, None) is getattr(kind, name, None) for name in methods)
    return kind if same else None


def _factory(module: nn.Module) -> dict[str, Any]:
    weight = next(module.parameters())
    return {"device": weight.device, "dtype": weight.dtype}


def _arguments(conv: Any) -> dict[str, Any]:
    """What a convolution of any kind is built with."""
    names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups")
    return {**{name: getattr(conv, name) for name in names}, "bias": conv.bias is not None, **_factory(conv)}


def _conv(conv: nn.Conv2d, options: Options) -> Replacement:
    method = get_method(options.method).conv
    mode = conv.padding_mode if conv.padding_mode in method.padding_modes else method.padding_modes[0]
    arguments: dict[str, Any] = _arguments(conv) | {"padding_mode": mode}
    notes = [] if mode == conv.padding_mode else [f"{mode} padding in place of {conv.padding_mode}"]
    # The shortcut of a ResNet, 1 x 1 every second pixel, skips pixels: twice as many channels cannot be orthogonal.
    shortcut = conv.kernel_size == (1, 1) and conv.padding == (0, 0) and conv.stride != (1, 1)
    if shortcut and method.orthogonal_by_rank:
        arguments |= {"kernel_size": conv.stride, "padding": "same"}
        notes.append("reads all pixels of its stride")
    layer = create_conv(options.method, **arguments)
    return layer, "; ".join([*notes, start_from(layer, conv, options.keep_weights)])


def _conv_transpose(conv: nn.ConvTranspose2d, options: Options) -> Replacement:
    arguments = _arguments(conv) | {"output_padding": conv.output_padding, "padding_mode": "zeros"}
    return create_conv_transpose(options.method, **arguments), "starts anew"


def _conv1d(conv: nn.Conv1d, options: Options) -> Replacement:
    mode = "circular" if conv.padding_mode == "circular" else "zeros"
    arguments = {name: value[0] if isinstance(value, tuple) else value for name, value in _arguments(conv).items()}
    note = "" if conv.padding_mode == mode else f"{mode} padding in place of {conv.padding_mode}; "
    return create_conv1d(options.method, **arguments, padding_mode=mode), f"{note}starts anew"


def _conv3d(conv: nn.Conv3d, options: Options) -> Replacement:
    note = "" if conv.padding_mode == "zeros" else f"zeros padding in place of {conv.padding_mode}; "
    return create_conv3d(options.method, **_arguments(conv)), f"{note}starts anew"


def _linear(linear: nn.Linear, options: Options) -> Replacement:
    has_bias = linear.bias is not None
    layer = create_linear(options.method, linear.in_features, linear.out_features, bias=has_bias, **_factory(linear))
    return layer, start_from(layer, linear, options.keep_weights)


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
    layer.restart_states()
    return "starts from the trained weights, projected"


def _batch_norm(norm: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d, options: Options) -> Replacement:
    layer = BatchCentering(norm.num_features, norm.momentum, affine=norm.affine)
    weight = next(iter([*norm.parameters(), *norm.buffers()]), torch.empty(0))
    return layer.to(weight), "shifts, does not stretch"


def _layer_norm(norm: nn.LayerNorm, options: Options) -> Replacement:
    return LayerCentering(tuple(range(-len(norm.normalized_shape), 0))), "shifts, does not stretch; no learned scale"


def _max_pool(pool: nn.MaxPool2d, options: Options) -> Replacement | None:
    dilated = pool.dilation not in (1, (1, 1))
    if dilated or pool.ceil_mode or pool.return_indices:
        raise InvalidInputError("dilation, ceil_mode and return_indices have no counterpart here")
    scaled = ScaledMaxPool2d(pool.kernel_size, pool.stride, pool.padding)  # pyright: ignore[reportArgumentType]
    return None if scaled.scale == 1 else (scaled, f"windows overlap: scaled by {scaled.scale:.3g}")


def _average_pool(pool: nn.AvgPool2d, options: Options) -> Replacement | None:
    if pool.stride != pool.kernel_size or pool.padding not in (0, (0, 0)) or pool.ceil_mode or pool.divisor_override:
        return None  # overlapping means are contractions
    return ScaledAvgPool2d(pool.kernel_size), "scaled to norm 1"


def _adaptive_pool(pool: nn.AdaptiveAvgPool2d, options: Options) -> Replacement | None:
    size = pool.output_size if isinstance(pool.output_size, tuple) else (pool.output_size, pool.output_size)
    height, width = size
    return None if height is None or width is None else (ScaledAdaptiveAvgPool2d((height, width)), "scaled to norm 1")


def _activation(module: nn.Module, options: Options) -> Replacement | None:
    """Where the constant is 1 the activation may stay; GELU and others are above 1 and always go."""
    if options.activation == "keep":
        return (nn.ReLU(), "its constant is above 1") if type(module) in _EXPANDING else None
    make, group = ACTIVATIONS[options.activation]
    odd = [width for width in options.widths if width % group]
    return (Abs(), f"{odd[0]} channels are no groups of {group}") if odd else (make(options.dim), "")


def _prelu(module: nn.PReLU, options: Options) -> Replacement:
    if options.activation != "keep":
        return _activation(module, options) or (module, "")
    layer = LipschitzPReLU(module.num_parameters, **_factory(module))
    with torch.no_grad():
        layer.weight.copy_(module.weight.clamp(-1, 1))
    return layer, "slopes are kept within [-1, 1]"


def _max_pool1d(pool: nn.MaxPool1d, options: Options) -> None:
    window, step = (value[0] if isinstance(value, tuple) else value for value in (pool.kernel_size, pool.stride))
    if step < window or pool.dilation != 1 or pool.ceil_mode or pool.return_indices:
        raise InvalidInputError("its windows overlap, which expands; make the stride as long as the window")


def _stays(module: nn.Module, options: Options) -> None:
    return None


_EXPANDING = (nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.SELU)
_NORM = "it divides by a deviation of the input, which has no Lipschitz constant; use onelip.layers.LayerCentering"
_ATTENTION = "attention has no Lipschitz constant; mix positions by nn.Linear, as MLP-Mixer does"
_RECURRENT = "a recurrence has no bound here; a stack of nn.Conv1d is converted"
_RESIZING = "it copies pixels, which expands; use nn.ConvTranspose2d, which is converted"
_LOSS = "it belongs into the loss: return the scores"
_HINTS: dict[type[nn.Module], str] = {
    **dict.fromkeys(
        (nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.LocalResponseNorm, nn.RMSNorm), _NORM
    ),
    **dict.fromkeys((nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder), _ATTENTION),
    **dict.fromkeys((nn.TransformerEncoderLayer, nn.TransformerDecoderLayer), _ATTENTION),
    **dict.fromkeys((nn.RNN, nn.LSTM, nn.GRU), _RECURRENT),
    **dict.fromkeys((nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d), _RESIZING),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax, nn.Softmax2d), _LOSS),
    nn.Bilinear: "a product of two activations has no Lipschitz constant",
    nn.ConvTranspose1d: "there is no transposed convolution of signals here; nn.ConvTranspose2d is converted",
    nn.ConvTranspose3d: "there is no transposed convolution of volumes here; nn.ConvTranspose2d is converted",
}
"""What to do about modules that have no counterpart."""

RULES: dict[type[nn.Module], Callable[[Any, Options], Replacement | None]] = {
    nn.Conv2d: _conv,
    nn.ConvTranspose2d: _conv_transpose,
    nn.Conv1d: _conv1d,
    nn.Conv3d: _conv3d,
    nn.Linear: _linear,
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
    nn.LayerNorm: _layer_norm,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_pool,
    nn.MaxPool1d: _max_pool1d,
    nn.PReLU: _prelu,
    **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.Tanh, nn.Hardtanh, *_EXPANDING), _activation),
    **dict.fromkeys((nn.Sigmoid, nn.Hardsigmoid, nn.Softplus, nn.Softsign), _stays),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AvgPool1d, nn.AdaptiveAvgPool1d), _stays),
    **dict.fromkeys((nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle, nn.ZeroPad2d), _stays),
}
