"""Operations of a `forward` that are not modules: which module takes their place, and what cannot be mended.

`F.avg_pool2d(x, 2)` becomes what `nn.AvgPool2d(2)` would: a rule makes the module that computes the same, and the rule
of that module decides.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")
CONCATENATIONS = (torch.cat, torch.concat, torch.concatenate)

_PRODUCT = (
    "a product of two activations has no Lipschitz constant; leave gates out, and write x * sigmoid(x) as nn.SiLU, "
    "which is replaced"
)
_MIXING = (
    "attention, a product of activations, has no Lipschitz constant; mix positions by nn.Linear, as MLP-Mixer does"
)
_QUOTIENT = "a quotient of two activations has no Lipschitz constant; divide by a number"
_NORM = "it divides by a deviation of the input, which has no Lipschitz constant; use onelip.layers.LayerCentering"
_RESIZING = "it copies pixels, which expands; use nn.ConvTranspose2d, which is converted"
_LOSS = "it belongs into the loss: return the scores"

REFUSED: dict[Any, str] = {
    **dict.fromkeys((F.softmax, torch.softmax, "softmax"), _LOSS),
    **dict.fromkeys((F.log_softmax, torch.log_softmax, "log_softmax"), _LOSS),
    **dict.fromkeys((F.layer_norm, F.group_norm, F.instance_norm, F.normalize), _NORM),
    F.batch_norm: "use nn.BatchNorm2d, which becomes centering",
    F.scaled_dot_product_attention: _MIXING,
    **dict.fromkeys((torch.matmul, operator.matmul, torch.bmm, torch.einsum, "matmul", "bmm", "__matmul__"), _MIXING),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul", "mul_"), _PRODUCT),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div", "div_"), _QUOTIENT),
    **dict.fromkeys((F.interpolate, F.upsample), _RESIZING),
}
"""Operations without a counterpart, and what to do; products and quotients only of two activations."""

_WEIGHTS = "its weights are trained and not constrained; use nn.Linear, nn.Conv2d and the like, which are converted"
_FACTOR = "a trained factor is not constrained; leave it out, or multiply by a number"
WEIGHTED: dict[Any, str] = {
    **dict.fromkeys((F.linear, F.conv1d, F.conv2d, F.conv3d), _WEIGHTS),
    **dict.fromkeys((F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d), _WEIGHTS),
    **{
        target: _WEIGHTS if note == _MIXING else _FACTOR
        for target, note in REFUSED.items()
        if note in (_MIXING, _PRODUCT)
    },
}
"""Operations of an activation and a parameter, which training makes as large as it likes, and what to do."""

NEED_TWO = {target for target, note in REFUSED.items() if note in (_PRODUCT, _QUOTIENT, _MIXING)} - {
    F.scaled_dot_product_attention
}

_MEAN = "divides the constant by sqrt(n) for n values; nn.AdaptiveAvgPool2d(1) is scaled to norm 1"
KEPT: dict[Any, str] = dict.fromkeys(("mean", torch.mean, F.avg_pool1d, F.avg_pool2d, F.adaptive_avg_pool2d), _MEAN)
"""Operations that stay, of which there is something to say."""

_POOLS: dict[Any, tuple[type[nn.Module], tuple[str, ...]]] = {
    F.max_pool2d: (nn.MaxPool2d, ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")),
    F.max_pool1d: (nn.MaxPool1d, ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")),
    F.avg_pool2d: (nn.AvgPool2d, ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")),
    F.adaptive_avg_pool2d: (nn.AdaptiveAvgPool2d, ("output_size",)),
    F.dropout: (nn.Dropout, ("p",)),
    F.dropout2d: (nn.Dropout2d, ("p",)),
}
_ACTIVATIONS: dict[Any, Callable[[], nn.Module]] = {
    **dict.fromkeys((F.relu, F.relu_, torch.relu, torch.relu_, "relu", "relu_"), nn.ReLU),
    F.relu6: nn.ReLU6,
    F.leaky_relu: nn.LeakyReLU,
    F.elu: nn.ELU,
    F.gelu: nn.GELU,
    F.silu: nn.SiLU,
    F.mish: nn.Mish,
    F.hardswish: nn.Hardswish,
    F.hardtanh: nn.Hardtanh,
    F.selu: nn.SELU,
}


def module_of(node: fx.Node) -> nn.Module | None:
    """The module that computes what this call does with its first argument; None where there is none."""
    if node.target in _ACTIVATIONS:
        return _ACTIVATIONS[node.target]()
    if node.target not in _POOLS:
        return None
    kind, names = _POOLS[node.target]
    given = {**dict(zip(names, node.args[1:], strict=False)), **node.kwargs}
    options = {name: given[name] for name in names if name in given}
    if any(isinstance(value, fx.Node) for value in options.values()):
        return None  # computed from the input's shape: it stays what it is
    return kind(**options)


def activations_of(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose numbers depend on the input; what is computed from shapes and parameters does not."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        is_shape = node.target in ("size", "dim", "numel") or (node.target is getattr and node.args[1] == "shape")
        if node.op == "placeholder" or (not is_shape and any(source in found for source in node.all_input_nodes)):
            found.add(node)
        if node.op == "call_method" and node.args and node.args[0] not in found:
            found.discard(node)  # a parameter in the shape of the input: self.token.expand(x.shape[0], -1)
    return found


def trained_of(model: fx.GraphModule) -> set[fx.Node]:
    """The nodes whose numbers are parameters or made of them."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    found: set[fx.Node] = set()
    for node in model.graph.nodes:
        sources = node.all_input_nodes
        is_parameter = node.op == "get_attr" and str(node.target) in parameters
        if is_parameter or (sources and node.op != "output" and all(source in found for source in sources)):
            found.add(node)
    return found


class ScaledConcat(nn.Module):
    """The inputs side by side along `dim`, divided by sqrt(n): together as Lipschitz as each of them."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        """Map n tensors to one."""
        return torch.cat(parts, self.dim) * (1 / math.sqrt(len(parts)))

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"
