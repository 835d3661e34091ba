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
from onelip.layers.convolutions import LipschitzConv2d
from onelip.layers.linear import LipschitzLinear

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
    shapes: frozenset[tuple[int, ...]] = frozenset()
    """The shapes of what it gets, batch included."""


def replacement(module: nn.Module, options: Options) -> Replacement | None:
    """What takes the place of a module, and a note; None where it may stay."""
    kind = kind_of(module)
    if kind is not None:
        return RULES[kind](module, options)
    if type(module) in _HINTS:
        raise InvalidInputError(_HINTS[type(module)])
    return None


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
    if shortcut and method.traits.orthogonal_by_rank:
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
    if not layer.traits.keeps_directions:
        return "starts anew: the method has no weights like these"
    weight = plain.weight
    if not weight.any():
        return "starts anew: its weights are zero"
    if isinstance(layer, LipschitzConv2d):
        weight = weight.unflatten(0, (layer.groups, -1)) if layer.groups > 1 else weight
    raw = layer.get_parameter("weight")
    if raw.shape != weight.shape:
        return "starts anew: the method's weights have another shape"
    own, gain = raw.clone(), signal_kept(layer, plain)
    # Of the size that the method's own start has: the transformation does not see it, its gradient does.
    raw.copy_(weight * (raw.norm() / weight.norm().clamp_min(torch.finfo(weight.dtype).tiny)))
    layer.restart_states()
    left = signal_kept(layer, plain)
    if not left >= _LEAST_SIGNAL * gain:
        raw.copy_(own)
        layer.restart_states()
        return f"starts anew: of its weights' projection {left / gain:.0%} of the signal would be left"
    if layer.bias is not None and plain.bias is not None:
        layer.bias.copy_(plain.bias)
    return "starts from the trained weights, projected"


_LEAST_SIGNAL = 0.5
"""Of the signal that the method's own start lets through. Below, a deep network has none left at its end."""


@torch.no_grad()
def signal_kept(layer: LipschitzConv2d | LipschitzLinear, plain: nn.Conv2d | nn.Linear) -> float:
    """How large the layer's outputs are, without its bias, relative to random inputs."""
    if isinstance(plain, nn.Linear):
        shape: tuple[int, ...] = (32, plain.in_features)
    else:
        sides = [stride * max(4, 1 + 2 * dilation * (taps // 2)) for stride, dilation, taps in _axes(plain)]
        shape = (4, plain.in_channels, *sides)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=draw).to(plain.weight)
    training = layer.training
    found = layer.eval()(x) - layer(torch.zeros_like(x))
    layer.train(training)
    return float(found.norm() / x.norm())


def _axes(conv: nn.Conv2d) -> zip[tuple[Any, ...]]:
    return zip(conv.stride, conv.dilation, conv.kernel_size, strict=True)


def _batch_norm(norm: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d, options: Options) -> Replacement:
    layer = BatchCentering(int(norm.num_features), norm.momentum, affine=norm.affine)
    weight = next(iter([*norm.parameters(), *norm.buffers()]), torch.empty(0))
    return layer.to(weight), "shifts, does not stretch"


def _layer_norm(norm: nn.LayerNorm, options: Options) -> Replacement:
    return LayerCentering(tuple(range(-len(norm.normalized_shape), 0))), "shifts, does not stretch; no learned scale"


def _group_norm(norm: nn.GroupNorm, options: Options) -> Replacement:
    """The mean of each group of channels: they are a dimension of their own while it is taken."""
    note = "shifts, does not stretch; no learned scale"
    if norm.num_groups == 1:
        return LayerCentering(), note
    (axes,) = {len(shape) - 2 for shape in options.shapes} or {2}
    groups = norm.num_groups, norm.num_channels // norm.num_groups
    centering = LayerCentering(tuple(range(-axes - 1, 0)))
    return nn.Sequential(nn.Unflatten(1, groups), centering, nn.Flatten(1, 2)), note


def _instance_norm(norm: Any, options: Options) -> Replacement:
    axes = 1 if isinstance(norm, nn.InstanceNorm1d) else 2 if isinstance(norm, nn.InstanceNorm2d) else 3
    return LayerCentering(tuple(range(-axes, 0))), "shifts, does not stretch; no learned scale"


def _max_pool(pool: nn.MaxPool2d, options: Options) -> Replacement | None:
    if pool.dilation not in (1, (1, 1)) or pool.ceil_mode or pool.return_indices:
        return None
    scaled = ScaledMaxPool2d(pool.kernel_size, pool.stride, pool.padding)  # pyright: ignore[reportArgumentType]
    return None if scaled.scale == 1 else (scaled, f"windows overlap: scaled by {scaled.scale:.3g}")


def _average_pool(pool: nn.AvgPool2d, options: Options) -> Replacement | None:
    sides = pool.kernel_size if isinstance(pool.kernel_size, tuple) else (pool.kernel_size, pool.kernel_size)
    whole = all(shape[-2] % sides[0] == shape[-1] % sides[1] == 0 for shape in options.shapes)
    if pool.stride != pool.kernel_size or pool.padding not in (0, (0, 0)) or pool.divisor_override or not whole:
        return None
    return ScaledAvgPool2d(pool.kernel_size), "scaled to norm 1"


def _adaptive_pool(pool: nn.AdaptiveAvgPool2d, options: Options) -> Replacement | None:
    height, width = pool.output_size if isinstance(pool.output_size, tuple) else (pool.output_size, pool.output_size)
    if height is None or width is None or any(len(s) < 4 or s[-2] % height or s[-1] % width for s in options.shapes):
        return None
    return ScaledAdaptiveAvgPool2d((height, width)), "scaled to norm 1"


def _activation(module: nn.Module, options: Options) -> Replacement | None:
    """Where the constant is 1 the activation may stay; GELU and others are above 1 and always go."""
    if options.activation == "keep":
        return (nn.ReLU(), "its constant is above 1") if type(module) in _EXPANDING else None
    make, group = ACTIVATIONS[options.activation]
    widths = (shape[options.dim] for shape in options.shapes if len(shape) > max(options.dim, 1))
    odd = [width for width in widths if width % group]
    return (Abs(), f"{odd[0]} channels are no groups of {group}") if odd else (make(options.dim), "")


def _prelu(module: nn.PReLU, options: Options) -> Replacement:
    if options.activation != "keep":
        return _activation(module, options) or (module, "")
    layer = LipschitzPReLU(module.num_parameters, **_factory(module))
    with torch.no_grad():
        layer.weight.copy_(module.weight.clamp(-1, 1))
    return layer, "slopes are kept within [-1, 1]"


def _stays(module: nn.Module, options: Options) -> None:
    return None


_EXPANDING = (nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.SELU)
NORM = "it divides by the size of its input: its constant grows as eps shrinks; use onelip.layers.LayerCentering"
ATTENTION = (
    "attention, a product of activations, has no Lipschitz constant; mix positions by nn.Linear, as MLP-Mixer does"
)
_RECURRENT = "a recurrence has no bound here; a stack of nn.Conv1d is converted"
LOSS = "it belongs into the loss: return the scores"
_HINTS: dict[type[nn.Module], str] = {
    nn.RMSNorm: NORM,
    **dict.fromkeys((nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder), ATTENTION),
    **dict.fromkeys((nn.TransformerEncoderLayer, nn.TransformerDecoderLayer), ATTENTION),
    **dict.fromkeys((nn.RNN, nn.LSTM, nn.GRU), _RECURRENT),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax, nn.Softmax2d), LOSS),
    nn.Bilinear: "a product of two activations has no Lipschitz constant",
    nn.ConvTranspose1d: "there is no transposed convolution of signals here; nn.ConvTranspose2d is converted",
    nn.ConvTranspose3d: "there is no transposed convolution of volumes here; nn.ConvTranspose2d is converted",
}
"""What to do about modules that have no counterpart."""

MEANS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
"""Modules that are scaled to norm 1 where no rule replaces them."""

RULES: dict[type[nn.Module], Callable[[Any, Options], Replacement | None]] = {
    nn.Conv2d: _conv,
    nn.ConvTranspose2d: _conv_transpose,
    nn.Conv1d: _conv1d,
    nn.Conv3d: _conv3d,
    nn.Linear: _linear,
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), _instance_norm),
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_pool,
    nn.PReLU: _prelu,
    **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.Tanh, nn.Hardtanh, *_EXPANDING), _activation),
    **dict.fromkeys((nn.Sigmoid, nn.Hardsigmoid, nn.Softplus, nn.Softsign), _stays),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AvgPool1d, nn.AdaptiveAvgPool1d), _stays),
    **dict.fromkeys((nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle, nn.ZeroPad2d), _stays),
}
