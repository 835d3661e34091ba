"""Layers of other packages in the paper's ConvNet, to be timed beside ours (extra `peers`).

Everything around the layers is onelip's own network, so that two timings differ by the layers alone. Each layer has the
options and the padding mode that its package chooses by default, and "same" geometry. For inference the
parametrisations are replaced by the tensors they compute, which is what both packages recommend; what a layer computes
outside of torch's parametrisations (Cayley all of it, SLL's linear layer its scaling) it computes in every pass.

Left out are orthogonium's older SOC and BCOP: they ask for a CUDA device when they are built.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from onelip.bench.measurement import Workload
from onelip.bench.measurement.workload import build_network
from onelip.errors import InvalidInputError
from onelip.layers import LipschitzConv2d, LipschitzLinear

_PACKAGES = ("orthogonium", "deel-torchlip", "einops")  # orthogonium's Cayley needs einops without asking for it
_SOC_TERMS = 3  # powers of the kernel in orthogonium's exponential, summed to one kernel: 3 x 3 becomes 7 x 7


@dataclass(frozen=True)
class PeerLayers:
    """How to build the two kinds of layers: `conv(channels, kernel_size)` and `linear(features)`, both square."""

    conv: Callable[[int, int], nn.Module]
    linear: Callable[[int], nn.Module]


@dataclass(frozen=True)
class Peer:
    """One kind of layer of another package; `load` imports the package."""

    key: str
    package: str
    load: Callable[[], PeerLayers]


def _aoc() -> PeerLayers:
    layers = _import("orthogonium.layers")
    return PeerLayers(
        conv=lambda channels, size: layers.AdaptiveOrthoConv2d(channels, channels, size),
        linear=lambda features: layers.OrthoLinear(features, features),
    )


def _aol() -> PeerLayers:
    conv = _import("orthogonium.layers.conv.AOL").AOLConv2D
    return PeerLayers(
        conv=lambda channels, size: conv(channels, channels, size, padding="same"),
        # There is no linear layer of this kind: a 1 x 1 convolution on 1 x 1 images is one.
        linear=lambda features: nn.Sequential(
            nn.Unflatten(1, (features, 1, 1)), conv(features, features, 1), nn.Flatten()
        ),
    )


def _cayley() -> PeerLayers:
    conv = _import("orthogonium.legacy.cayley_ortho_conv").Cayley
    # Its own linear layer asks for a CUDA device.
    return PeerLayers(conv=lambda channels, size: conv(channels, channels, size), linear=_aoc().linear)


def _sll() -> PeerLayers:
    layers = _import("orthogonium.layers.conv.SLL")
    return PeerLayers(
        conv=lambda channels, size: layers.SDPBasedLipschitzResBlock(channels, 1, size),
        linear=lambda features: layers.SDPBasedLipschitzDense(features, features, features),
    )


def _soc() -> PeerLayers:
    conv = _import("orthogonium.layers.conv.adaptiveSOC").AdaptiveSOCConv2d
    return PeerLayers(
        conv=lambda channels, size: conv(channels, channels, size, padding=size // 2 * _SOC_TERMS),
        linear=_aoc().linear,  # what its 1 x 1 convolution is as well
    )


def _spectral() -> PeerLayers:
    layers = _import("deel.torchlip")
    return PeerLayers(
        conv=lambda channels, size: layers.SpectralConv2d(channels, channels, size, padding="same"),
        linear=lambda features: layers.SpectralLinear(features, features),
    )


def _frobenius() -> PeerLayers:
    layers = _import("deel.torchlip")
    return PeerLayers(
        conv=lambda channels, size: layers.FrobeniusConv2d(channels, channels, size, padding="same"),
        # By default each output is 1-Lipschitz by itself, but not the layer.
        linear=lambda features: layers.FrobeniusLinear(features, features, disjoint_neurons=False),
    )


PEERS = (
    Peer("orthogonium-aoc", "orthogonium", _aoc),
    Peer("orthogonium-aol", "orthogonium", _aol),
    Peer("orthogonium-cayley", "orthogonium", _cayley),
    Peer("orthogonium-sll", "orthogonium", _sll),
    Peer("orthogonium-soc", "orthogonium", _soc),
    Peer("torchlip-frobenius", "deel-torchlip", _frobenius),
    Peer("torchlip-spectral", "deel-torchlip", _spectral),
)
"""All layers that run on a CPU. AOC is orthogonium's BCOP; its SOC promises a Lipschitz constant of 1.08 only."""


def peer_versions() -> dict[str, str]:
    """Versions of the packages of the extra `peers`; an error that names the extra if one is missing."""
    try:
        return {package: metadata.version(package) for package in _PACKAGES}
    except metadata.PackageNotFoundError as error:
        raise InvalidInputError(f"{error.name} is not installed: peers need `pip install 'onelip[peers]'`") from None


def build_peer_network(peer: Peer, workload: Workload) -> nn.Module:
    """The ConvNet of a workload with all layers replaced by the peer's, in training mode."""
    layers = peer.load()
    model = build_network(replace(workload, method="standard"))
    for path, module in list(model.named_modules()):
        if isinstance(module, LipschitzConv2d):
            _replace(model, path, layers.conv(module.in_channels, module.kernel_size[0]))
        elif isinstance(module, LipschitzLinear):
            _replace(model, path, layers.linear(module.in_features))
    return model.train()


def for_inference(model: nn.Module) -> nn.Module:
    """The same module in evaluation mode, with parametrised tensors replaced by their present values."""
    for module in list(model.eval().modules()):
        if parametrize.is_parametrized(module):
            parametrizations: Any = module.parametrizations
            for name in list(parametrizations):
                parametrize.remove_parametrizations(module, name)
    return model


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def _import(name: str) -> Any:
    """A module of an optional package, which type checkers need not find."""
    return importlib.import_module(name)
