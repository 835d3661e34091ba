"""Reader of the networks that the comparison paper published: state dicts of its torch.hub models, seven methods.

    model = read_public_model("cifar10_lipnetXS_aol", "CIFAR10_final_training_24h_ConvNetXS_AOLConv2d.pth")

The result is a `ConvNet` in the published setting. Its channels are in the order of `onelip.layers.blocks.grouping`, so
that every convolution stands between a permutation and its inverse. What the two codes compute otherwise is in
docs/reproduction.md: norms of CPL and polar factors of LOT are exact here, so that outputs differ by a few per cent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from onelip.errors import InvalidInputError
from onelip.layers.methods.cpl import CPLConv2d, CPLLinear
from onelip.layers.methods.sll import PUBLISHED_EPSILON
from onelip.layers.methods.soc import LARGEST_ANGLE, unit_skew_kernel
from onelip.linalg.orthogonal import skew_kernel
from onelip.linalg.polar import polar_factor
from onelip.models.config import ConvNetConfig
from onelip.models.convnet import ConvNet
from onelip.protocol import DATA_SETS

_HUB_NAME = re.compile(r"(cifar10|cifar100|tiny_imagenet)_lipnet(XS|S|M|L)_(aol|bcop|cayley|cpl|lot|sll|soc)")
_POWER_ITERATIONS = 50
_LAYERS = 5

State = Mapping[str, Tensor]


def read_public_model(name: str, path: str | os.PathLike[str]) -> ConvNet:
    """The network with this torch.hub name from a file of its state dict, in evaluation mode; nothing is unpickled."""
    match = _HUB_NAME.fullmatch(name)
    if match is None:
        raise InvalidInputError(
            f"{name!r} is no public model, use <data set>_lipnet<size>_<method>: cifar10, cifar100, tiny_imagenet; "
            "XS, S, M, L; aol, bcop, cayley, cpl, lot, sll, soc"
        )
    data = DATA_SETS[match[1].replace("_", "-")]
    config = ConvNetConfig(
        method=match[3],
        size=match[2],
        num_classes=data.num_classes,
        input_size=data.image_size,
        setting="published",
    )
    return convert_public_state(torch.load(path, map_location="cpu", weights_only=True), config)


@torch.no_grad()
def convert_public_state(state: State, config: ConvNetConfig) -> ConvNet:
    """The network of this configuration with the weights of a public state dict."""
    if config.method not in _CONVERTERS or config.setting != "published":
        raise InvalidInputError(f"{config.method} with setting={config.setting!r} has no public model")
    model = ConvNet.from_config(config).eval()
    ours = model.state_dict()
    for theirs, name, side in _layers(config):
        layer = {key.removeprefix(theirs): value for key, value in state.items() if key.startswith(theirs)}
        if not layer:
            raise InvalidInputError(f"the state dict has no {theirs}*: it is not that of {config}")
        is_head = name == "linear"
        values = _CONVERTERS[config.method](layer, side, is_head)
        for key, value in values.items():
            target = ours[f"{name}.{key}"]
            moved = value if is_head else _permuted(value, key)
            target.copy_(moved.reshape(target.shape))
    for module in model.modules():
        if isinstance(module, CPLConv2d | CPLLinear):
            module.restart_states(_POWER_ITERATIONS)
    return model


def _layers(config: ConvNetConfig) -> Iterator[tuple[str, str, int]]:
    """Prefix of the public names, name here and side of the image for every layer."""
    yield "FirstConv.", "stem", config.input_size
    for block in range(config.num_blocks):
        for layer in range(_LAYERS):
            yield f"Block{block + 1}.{2 * layer}.", f"block{block + 1}.conv{layer + 1}", config.input_size >> block
    head = 1 if config.method in ("bcop", "cayley") else 0
    yield f"ClassificationHead.{head}.", "linear", 1


def _permuted(value: Tensor, key: str) -> Tensor:
    """Members of a pair, neighbours there, lie half of the channels apart here."""
    if key in ("alpha", "angle"):
        return value
    channels = value.shape[-2] if key == "factors" else value.shape[0]
    order = torch.arange(channels).reshape(-1, 2).T.flatten()
    if key == "factors":
        return value[:, order]
    return value[order][:, order] if key == "weight" else value[order]


def _named(weight: str) -> Callable[[State, int, bool], dict[str, Tensor]]:
    """Weight and bias as they are, the weight under another name."""
    return lambda layer, side, is_head: {"weight": layer[weight], "bias": layer["bias"]}


def _bcop(layer: State, side: int, is_head: bool) -> dict[str, Tensor]:
    """Published: K^T = H A1 B1 A2 B2, with horizontal A and vertical B. So K = H^T (H B2 H^T) (H A2 H^T) ..."""
    if is_head:
        return _CONVERTERS["aol"](layer, side, is_head)
    matrices = polar_factor(layer["param_matrices"].double())
    first, rest = matrices[0], matrices[1:].flip(0)
    if not len(rest):
        return {"weight": first, "bias": layer["bias"]}  # 1 x 1 kernels are not transposed
    return {"weight": first.T, "factors": first @ rest[..., : first.shape[0] // 2], "bias": layer["bias"]}


def _cayley(layer: State, side: int, is_head: bool) -> dict[str, Tensor]:
    """Published: alpha is divided by the norm of half of the spectrum, here by that of the kernel."""
    weight = layer["weight"].double()
    half = weight if is_head else torch.fft.rfft2(weight, (side, side))
    return {
        "weight": layer["weight"],
        "bias": layer["bias"],
        "alpha": layer["alpha"] * weight.norm() / torch.linalg.vector_norm(half),
    }


def _sll(layer: State, side: int, is_head: bool) -> dict[str, Tensor]:
    """Published: 1 / (|q| + epsilon) is what Q = exp(q) is here."""
    return _CONVERTERS["cpl"](layer, side, is_head) | {"q": -(layer["q"].abs() + PUBLISHED_EPSILON).log()}


def _soc(layer: State, side: int, is_head: bool) -> dict[str, Tensor]:
    """Published: L is the skew part times correction over the smallest of four estimates of norms."""
    kernel = layer["random_conv_filter"]
    values = {"weight": kernel, "bias": layer["bias"]}
    if is_head:
        return values
    skew = skew_kernel(kernel.double())
    estimates = [(skew * layer[f"u{i}"] * layer[f"v{i}"]).sum() for i in range(1, 5)]
    unit = unit_skew_kernel(kernel.double())
    ratio = skew.norm() / (unit.norm() * torch.stack(estimates).min())
    return values | {"angle": (layer["correction"] * ratio).clamp(max=LARGEST_ANGLE[0])}


_CONVERTERS: dict[str, Callable[[State, int, bool], dict[str, Tensor]]] = {
    "aol": _named("parametrizations.weight.original"),
    "bcop": _bcop,
    "cayley": _cayley,
    "cpl": _named("kernel"),
    "lot": _named("weight"),
    "sll": _sll,
    "soc": _soc,
}
