"""Layers of other packages in the paper's ConvNet, to be timed beside ours (extra `peers`; lipnn is the paper's code).

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

_EXTRA = "pip install 'onelip[peers]'"
_LIPNN = "pip install git+https://github.com/berndprach/1LipschitzLayersCompared"
_PACKAGES = {  # by the first part of a layer's name: distributions, and where to get them
    "orthogonium": (("orthogonium", "einops"), _EXTRA),  # its Cayley needs einops without asking for it
    "torchlip": (("deel-torchlip",), _EXTRA),
    "lipnn": (("lipnn", "einops"), f"{_LIPNN} einops"),
}
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


def _lipnn(conv: str, linear: str | None = None) -> Callable[[], PeerLayers]:
    """Layers of the paper's public code: without a linear one, the last layer is a 1 x 1 convolution, as there."""

    def build() -> PeerLayers:
        layers = import_module("lipnn.layers")
        conv_class = getattr(layers, conv)

        def last(features: int) -> nn.Module:
            if linear is not None:
                return getattr(layers, linear)(features, features)
            return nn.Sequential(
                nn.Unflatten(1, (features, 1, 1)), conv_class(features, features, kernel_size=1), nn.Flatten()
            )

        return PeerLayers(conv=lambda channels, size: conv_class(channels, channels, kernel_size=size), linear=last)

    return build


PEERS: dict[str, Callable[[], PeerLayers]] = {
    "orthogonium:aoc": _aoc,
    "orthogonium:aol": _aol,
    "orthogonium:cayley": _cayley,
    "orthogonium:sll": _sll,
    "orthogonium:soc": _soc,
    "torchlip:frobenius": _frobenius,
    "torchlip:spectral": _spectral,
    "lipnn:aol": _lipnn("AOLConv2d"),
    "lipnn:bcop": _lipnn("BCOP", "BjorckLinear"),
    "lipnn:cayley": _lipnn("CayleyConv", "CayleyLinear"),
    "lipnn:cpl": _lipnn("CPLConv2d"),
    "lipnn:eco": _lipnn("ECO"),
    "lipnn:lot": _lipnn("LOT"),
    "lipnn:sandwich": _lipnn("SandwichConv", "SandwichFc"),
    "lipnn:sll": _lipnn("SLLConv2d"),
    "lipnn:soc": _lipnn("SOC"),
}
"""All layers that run on a CPU, by the name that takes the place of a method; a call imports the package.

AOC is orthogonium's BCOP; its SOC promises a Lipschitz constant of 1.08 only.
"""


def peer_versions(peer: str) -> dict[str, str]:
    """Versions of the packages that the layers `peer` come from; an error that says where to get a missing one."""
    packages, command = _PACKAGES.get(peer.partition(":")[0], ((), ""))
    try:
        return {package: metadata.version(package) for package in packages}
    except metadata.PackageNotFoundError as error:
        raise InvalidInputError(f"{error.name} is not installed: {peer} needs `{command}`") from None


def installed_peers() -> list[str]:
    """All layers whose packages are installed; an error that names the extra if there are none."""
    found, missing = [], None
    for peer in PEERS:
        try:
            peer_versions(peer)
            found.append(peer)
        except InvalidInputError as error:
            missing = missing or error
    if not found and missing is not None:
        raise missing
    return found


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
