"""The convolutional network of the comparison paper, for any method, width and image size.

    ConvNet("aol", "XS", num_classes=10)          # the paper's CIFAR-10 network with AOL layers
    create("tiny-imagenet-m-lot")                 # by name; a suffix -1x1 sets the kernel size

Every part but the method's layers is an isometry, a projection or an activation, all of constant 1: with a
1-Lipschitz method, the network is 1-Lipschitz.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import (
    Abs,
    FirstChannels,
    GroupSort,
    Householder,
    MaxMin,
    Variant,
    create_conv,
    create_linear,
    list_methods,
)
from onelip.layers.blocks.grouping import GroupedChannelPad, HalveAndUnshuffle
from onelip.layers.memory_format import any_memory_format
from onelip.layers.registry import published_settings
from onelip.models.batch_parts import apply_in_parts, apply_modules, may_be_split
from onelip.models.config import ConvNetConfig
from onelip.models.named_network import NamedNetwork, check_images
from onelip.protocol import DATA_SETS, WIDTHS

_ACTIVATIONS: dict[str, Callable[[int], nn.Module]] = {
    "maxmin": lambda channels: MaxMin(),
    "groupsort4": lambda channels: GroupSort(4),
    "householder": Householder,
    "abs": lambda channels: Abs(),
}

_CONVS_PER_BLOCK = 5


class ConvNet(NamedNetwork):
    """The network of the comparison paper, tables "Architecture" and "Downsize Block".

        zeros around the image up to a square of s x s, zero channels up to w, conv 1 x 1, activation,
        log2(s) blocks of 5 x [conv k x k, activation], first half of the pairs, pixel unshuffle 2,
        flatten, linear, first `num_classes` outputs.

    MaxMin sorts pairs of channels, and a block keeps maxima and minima of the first half of them;
    `onelip.layers.blocks.grouping` says how the channels are ordered. All convolutions are square, t -> t channels, and
    each block doubles t. The last block, on 2 x 2 images, has kernels of 1 x 1. All layers have biases: that is what
    makes the parameter counts those of the paper.

    Args:
        method: key of a method, see `onelip.layers.list_methods`.
        size: XS, S, M or L (w = 16, 32, 64, 128, halved for each doubling of the image beyond 32), or None.
        num_classes: number of scores.
        input_size: height of the images, and their width unless `input_width` is given. Images that are not squares of
            a power of two (at least 8) are extended by zeros to the next one. That changes no distance and no radius.
        kernel_size: side of the kernels.
        in_channels: channels of the images.
        width: w itself, with size=None.
        activation: maxmin, groupsort4, householder or abs.
        padding_mode: circular or zeros; "auto" is circular, or that of the published setting.
        init: starting values of the method's layers; "auto" is the method's own choice, or the published start.
        setting: "own", or "published" for paddings, starts and layer arguments of the comparison paper's code.
        input_width: width of the images where it is not their height.
        device: where to create the parameters.
        dtype: type of the parameters.

    Examples:
        >>> import torch, onelip
        >>> model = onelip.ConvNet("aol", None, num_classes=10, input_size=8, width=4)
        >>> model(torch.rand(2, 3, 8, 8)).shape
        torch.Size([2, 10])
    """

    is_accelerated = True
    """`onelip.accelerate` has nothing to add."""

    def __init__(
        self,
        method: str,
        size: str | None,
        num_classes: int,
        input_size: int = 32,
        kernel_size: int = 3,
        *,
        in_channels: int = 3,
        width: int | None = None,
        activation: str = "maxmin",
        padding_mode: str = "auto",
        init: str = "auto",
        setting: str = "own",
        input_width: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        config = ConvNetConfig(
            method=method,
            size=size,
            num_classes=num_classes,
            input_size=input_size,
            kernel_size=kernel_size,
            in_channels=in_channels,
            width=width,
            activation=activation,
            padding_mode=padding_mode,
            init=init,
            setting=setting,
            input_width=input_width,
        )
        # Stem and head have no equal that they could be transformed with.
        sides = {block: config.padded_size >> (block - 1) for block in range(1, config.num_blocks + 1)}
        layers = range(1, _CONVS_PER_BLOCK + 1)
        sizes = {f"block{block}.conv{layer}": (side, side) for block, side in sides.items() for layer in layers}
        modules = _modules_of(config, {"device": device, "dtype": dtype})
        super().__init__(modules, sizes, asdict(config), config.input_shape)
        self.config = config

    @classmethod
    def from_config(
        cls,
        config: ConvNetConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> ConvNet:
        """A new network of this configuration, with fresh parameters."""
        return cls(**asdict(config), device=device, dtype=dtype)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Scores. In training, layers that are alike are transformed together; see `batch_parts` for evaluation."""
        check_images(self, self.input_shape, input)
        bytes_of_image = self.config.channels * self.config.padded_size**2 * input.element_size()
        if not may_be_split(self, input, bytes_of_image):
            return super().forward(input)
        x, stage = input, list[nn.Module]()
        with any_memory_format():
            for name, module in self.named_children():
                stage.append(module)
                if name.startswith("block"):  # which halves the bytes of an image
                    x = apply_in_parts(partial(apply_modules, stage), x, bytes_of_image)
                    bytes_of_image //= 2
                    stage = []
            return apply_modules(stage, x)


def _modules_of(config: ConvNetConfig, factory: dict[str, Any]) -> OrderedDict[str, nn.Module]:
    channels = config.channels
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    group_size = config.group_size
    if any(config.image_padding):
        modules["image_pad"] = nn.ZeroPad2d(config.image_padding)
    modules["pad"] = GroupedChannelPad(channels, group_size)
    ends = {"init": config.init}
    published = published_settings().get(config.method)
    if config.init == "published" and published is not None and published.ends_init is not None:
        ends = {"init": published.ends_init}
    modules["stem"] = _conv(config, channels, 1, factory | ends)
    modules["stem_activation"] = _activation(config, channels, factory)
    for block in range(1, config.num_blocks + 1):
        last = block == config.num_blocks
        convs: OrderedDict[str, nn.Module] = OrderedDict()
        for layer in range(1, _CONVS_PER_BLOCK + 1):
            convs[f"conv{layer}"] = _conv(config, channels, 1 if last else config.kernel_size, factory)
            convs[f"activation{layer}"] = _activation(config, channels, factory)
        convs["downsize"] = HalveAndUnshuffle(group_size, 1 if last else group_size)
        modules[f"block{block}"] = nn.Sequential(convs)
        channels *= 2
    modules["flatten"] = nn.Flatten()
    modules["linear"] = create_linear(config.method, channels, channels, variant=_variant(config), **factory, **ends)
    modules["scores"] = FirstChannels(config.num_classes)
    return modules


def _conv(config: ConvNetConfig, channels: int, kernel_size: int, factory: dict[str, Any]) -> nn.Module:
    options: dict[str, Any] = {"padding_mode": config.padding_mode, "init": config.init, **factory}
    if config.published is not None and kernel_size > 1:
        options |= config.published.options
    return create_conv(config.method, channels, channels, kernel_size, variant=_variant(config), **options)


def _variant(config: ConvNetConfig) -> Variant:
    return "own" if config.published is None or config.published.conv is None else "published"


def _activation(config: ConvNetConfig, channels: int, factory: dict[str, Any]) -> nn.Module:
    module = _ACTIVATIONS[config.activation](channels)
    return module.to(**{key: value for key, value in factory.items() if value is not None})


def create(name: str) -> ConvNet:
    """The network of the paper with this name: `<data set>-<size>-<method>`, `-1x1` appended for that kernel.

    create("cifar10-xs-aol"), create("cifar100-s-soc"), create("tiny-imagenet-m-lot-1x1")

    Examples:
        >>> import torch, onelip
        >>> with torch.device("meta"):  # no memory is used
        ...     model = onelip.create("cifar10-xs-aol")
        >>> model.input_shape
        (3, 32, 32)
    """
    rest = name.lower()
    kernel_size = 1 if rest.endswith("-1x1") else 3
    rest = rest.removesuffix("-1x1")
    data_set = max((key for key in DATA_SETS if rest.startswith(f"{key}-")), key=len, default=None)
    parts = rest.removeprefix(f"{data_set}-").split("-")
    sizes, methods = [size.lower() for size in WIDTHS], [method.key for method in list_methods()]
    if data_set is None or len(parts) != 2 or parts[0] not in sizes or parts[1] not in methods:
        raise InvalidInputError(
            f"there is no model {name!r}, use <data set>-<size>-<method> or that with -1x1 at the end: "
            f"{', '.join(DATA_SETS)}; {', '.join(sizes)}; {', '.join(methods)}"
        )
    data = DATA_SETS[data_set]
    return ConvNet(parts[1], parts[0], data.num_classes, data.image_size, kernel_size)
