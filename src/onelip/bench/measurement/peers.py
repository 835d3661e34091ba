"""Layers of other packages in the paper's ConvNet, to be timed beside ours (extra `peers`).

Everything around the layers is onelip's own network, so that two timings differ by the layers alone. Each layer has the
options and the padding mode that its package chooses by default, and "same" geometry. What a layer computes outside of
torch's parametrisations (Cayley all of it, SLL's linear layer its scaling) it computes in every pass of inference too.

Left out are orthogonium's older SOC and BCOP: they ask for a CUDA device when they are built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata

from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import LipschitzConv2d, LipschitzLinear

_PACKAGES = ("orthogonium", "deel-torchlip", "einops")  # orthogonium's Cayley needs einops without asking for it
_SOC_TERMS = 3  # powers of the kernel in orthogonium's exponential, summed to one kernel: 3 x 3 becomes 7 x 7


@dataclass(frozen=True)
class PeerLayers:
    """How to build the two kinds of layers: `conv(channels, kernel_size)` and `linear(features)`, both square."""

    conv: Callable[[int, int], nn.Module]
    linear: Callable[[int], nn.Module]


def _aoc() -> PeerLayers:
    layers = import_module("orthogonium.layers")
    return PeerLayers(
        conv=lambda channels, size: layers.AdaptiveOrthoConv2d(channels, channels, size),
        linear=lambda features: layers.OrthoLinear(features, features),
    )


def _aol() -> PeerLayers:
    conv = import_module("orthogonium.layers.conv.AOL").AOLConv2D
    return PeerLayers(
        conv=lambda channels, size: conv(channels, channels, size, padding="same"),
        # There is no linear layer of this kind: a 1 x 1 convolution on 1 x 1 images is one.
        linear=lambda features: nn.Sequential(
            nn.Unflatten(1, (features, 1, 1)), conv(features, features, 1), nn.Flatten()
        ),
    )


def _cayley() -> PeerLayers:
    conv = import_module("orthogonium.legacy.cayley_ortho_conv").Cayley
    # Its own linear layer asks for a CUDA device.
    return PeerLayers(conv=lambda channels, size: conv(channels, channels, size), linear=_aoc().linear)


def _sll() -> PeerLayers:
    layers = import_module("orthogonium.layers.conv.SLL")
    return PeerLayers(
        conv=lambda channels, size: layers.SDPBasedLipschitzResBlock(channels, 1, size),
        linear=lambda features: layers.SDPBasedLipschitzDense(features, features, features),
    )


def _soc() -> PeerLayers:
    conv = import_module("orthogonium.layers.conv.adaptiveSOC").AdaptiveSOCConv2d
    return PeerLayers(
        conv=lambda channels, size: conv(channels, channels, size, padding=size // 2 * _SOC_TERMS),
        linear=_aoc().linear,  # what its 1 x 1 convolution is as well
    )


def _spectral() -> PeerLayers:
    layers = import_module("deel.torchlip")
    return PeerLayers(
        conv=lambda channels, size: layers.SpectralConv2d(channels, channels, size, padding="same"),
        linear=lambda features: layers.SpectralLinear(features, features),
    )


def _frobenius() -> PeerLayers:
    layers = import_module("deel.torchlip")
    return PeerLayers(
        conv=lambda channels, size: layers.FrobeniusConv2d(channels, channels, size, padding="same"),
        # By default each output is 1-Lipschitz by itself, but not the layer.
        linear=lambda features: layers.FrobeniusLinear(features, features, disjoint_neurons=False),
    )


PEERS: dict[str, Callable[[], PeerLayers]] = {
    "orthogonium:aoc": _aoc,
    "orthogonium:aol": _aol,
    "orthogonium:cayley": _cayley,
    "orthogonium:sll": _sll,
    "orthogonium:soc": _soc,
    "torchlip:frobenius": _frobenius,
    "torchlip:spectral": _spectral,
}
"""All layers that run on a CPU, by the name that takes the place of a method; a call imports the package.

AOC is orthogonium's BCOP; its SOC promises a Lipschitz constant of 1.08 only.
"""


def peer_versions() -> dict[str, str]:
    """Versions of the packages of the extra `peers`; an error that names the extra if one is missing."""
    try:
        return {package: metadata.version(package) for package in _PACKAGES}
    except metadata.PackageNotFoundError as error:
        raise InvalidInputError(f"{error.name} is not installed: peers need `pip install 'onelip[peers]'`") from None


def replace_layers(model: nn.Module, layers: PeerLayers) -> nn.Module:
    """Put the peer's layers in the place of all of onelip's, which are square in the paper's network."""
    for path, module in list(model.named_modules()):
        if isinstance(module, LipschitzConv2d):
            replacement = layers.conv(module.in_channels, module.kernel_size[0])
        elif isinstance(module, LipschitzLinear):
            replacement = layers.linear(module.in_features)
        else:
            continue
        model.set_submodule(path, replacement)
    return model
