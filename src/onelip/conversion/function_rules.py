"""Operations of a `forward` that are not modules: which module takes their place, and what cannot be mended.

`F.avg_pool2d(x, 2)` becomes what `nn.AvgPool2d(2)` would: a rule makes the module that computes the same, and the rule
of that module decides. Operations are known by the names that certificates have for them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx, nn

from onelip.certification.traced import nested
from onelip.conversion.module_rules import ATTENTION, LOSS, NORM

ADDITIONS = ("add",)
CONCATENATIONS = ("cat", "concat", "concatenate")

NEED_TWO = ("matmul", "bmm", "einsum")

REFUSED: dict[str, str] = {
    **dict.fromkeys(("softmax", "log_softmax"), LOSS),
    **dict.fromkeys(("normalize", "rms_norm"), NORM),
    "scaled_dot_product_attention": ATTENTION,
    **dict.fromkeys(NEED_TWO, ATTENTION),
}
"""Operations without a counterpart, and what to do; those of `NEED_TWO` only for two activations."""

WEIGHTS = "its weights are trained and not constrained; use nn.Linear, nn.Conv2d, nn.PReLU, which are converted"
WEIGHTED = ("linear", *(f"conv{kind}{axes}d" for kind in ("", "_transpose") for axes in (1, 2, 3)), *NEED_TWO)
"""Operations of an activation and a parameter, which training makes as large as it likes: `WEIGHTS` says what to do."""

_POOL = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
_MODULES: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "max_pool2d": (nn.MaxPool2d, _POOL),
    "max_pool1d": (nn.MaxPool1d, _POOL),
    "avg_pool2d": (nn.AvgPool2d, ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d, ("output_size",)),
    "dropout": (nn.Dropout, ("p",)),
    "dropout2d": (nn.Dropout2d, ("p",)),
    "feature_dropout": (nn.Dropout2d, ("p",)),
    "layer_norm": (nn.LayerNorm, ("normalized_shape",)),
    "group_norm": (nn.GroupNorm, ("num_groups",)),
    "relu": (nn.ReLU, ()),
    "relu6": (nn.ReLU6, ()),
    "leaky_relu": (nn.LeakyReLU, ()),
    "elu": (nn.ELU, ()),
    "gelu": (nn.GELU, ()),
    "silu": (nn.SiLU, ()),
    "mish": (nn.Mish, ()),
    "hardswish": (nn.Hardswish, ()),
    "hardtanh": (nn.Hardtanh, ()),
    "selu": (nn.SELU, ()),
}
_OF_CHANNELS = {
    "batch_norm": (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    "instance_norm": (nn.InstanceNorm1d, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
}


def module_of(node: fx.Node, name: str) -> nn.Module | None:
    """The module that computes what this call does with its first argument; None where there is none."""
    source = node.args[0] if node.args else node.kwargs.get("input")
    shape = source.meta.get("shape") if isinstance(source, fx.Node) else None
    if name in _OF_CHANNELS and shape is not None:
        return _OF_CHANNELS[name][min(len(shape), 5) - 2](shape[1])
    if name not in _MODULES or shape is None:
        return None
    kind, names = _MODULES[name]
    given: dict[str, Any] = {**dict(zip(names, node.args[1:], strict=False)), **node.kwargs}
    options: dict[str, Any] = {key: given[key] for key in names if key in given}
    if kind is nn.LayerNorm:
        options = {"normalized_shape": shape[-len(options["normalized_shape"]) :]}
    if any(isinstance(value, fx.Node) for value in nested(options)):
        return None  # computed from the input's shape: it stays what it is
    if kind is nn.GroupNorm:
        options["num_channels"] = shape[1]
    return kind(**options)


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


class BoundedProduct(nn.Module):
    """A tensor times a trained factor, which is cut to [-1, 1]."""

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """Map to the shape of the product."""
        return x * factor.clamp(-1, 1)
