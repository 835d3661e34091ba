"""FastNet: the most certified accuracy per minute of training on CPUs.

What makes a network slow to train on a CPU is work at 32 x 32 pixels, parameter transformations in every step, and many
small operations. FastNet leaves 32 x 32 at once by moving pixels into channels, has few layers, each wide enough to
fill the processor, and orthogonal matrices that are stored as such (`stiefel`), so that a step costs little more than
that of a plain network. What makes a certificate loose is a layer whose adjoint shrinks the gradient of a margin: zeros
around an image, or more channels out than in. Here images are circles, and with up to 48 channels at the first
resolution no layer widens. docs/training_fast.md has what each choice is worth.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import MaxMin, create_conv, create_linear, get_method
from onelip.models.named_network import NamedNetwork, check_counts, checked_image_shape
from onelip.protocol import NETWORK_FACTS, NetworkInfo


class FastNet(NamedNetwork):
    """Pixel unshuffle, `depth` convolutions; pixel unshuffle, 1 x 1, `depth` convolutions; one linear layer.

        unshuffle 4, depth x [conv 3 x 3 to w channels]                  8 x 8 for images of 32 x 32
        unshuffle 2, conv 1 x 1 to 2 w, depth x [conv 3 x 3]             4 x 4
        flatten, linear to the scores

    with MaxMin behind every convolution. Every layer is the method's, and all else moves entries. Patches of 2 pixels
    have a stage more in front, which was there in earlier versions:

        unshuffle 2, conv 3 x 3 to w/2 channels                          16 x 16
        unshuffle 2, conv 1 x 1 to w, depth x [conv 3 x 3]               8 x 8

    Args:
        method: key of a method.
        width: channels at the second resolution, a multiple of 4.
        num_classes: number of scores.
        input_shape: channels, height and width of the images; the sides multiples of 8.
        depth: convolutions per resolution.
        padding_mode: circular or zeros.
        patch: pixels per side that the first unshuffle moves into channels, 4 or 2.
        device: where to create the parameters.
        dtype: type of the parameters.

    Examples:
        >>> import torch, onelip
        >>> onelip.models.FastNet(width=16, num_classes=10)(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    info: ClassVar[NetworkInfo] = NETWORK_FACTS["fastnet"]
    absent_arguments: ClassVar[Mapping[str, Any]] = {"patch": 2}

    def __init__(
        self,
        method: str = info.method,
        width: int = 64,
        num_classes: int = 10,
        input_shape: Sequence[int] = (3, 32, 32),
        *,
        depth: int = 2,
        padding_mode: str = "circular",
        patch: int = 4,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape = checked_image_shape("FastNet", input_shape, 8)
        check_counts("FastNet", width=width, num_classes=num_classes, depth=depth)
        if width % 4:
            raise InvalidInputError(f"FastNet: width={width} is not supported, use a multiple of 4")
        if patch not in (2, 4):
            raise InvalidInputError(f"FastNet: patch={patch!r} is not supported, use 2 or 4")
        key = get_method(method).key
        factory = {"device": device, "dtype": dtype}
        modules: OrderedDict[str, nn.Module] = OrderedDict()
        sizes = {}
        channels, side = shape[0], (shape[1], shape[2])
        stages = [(4, width, [3] * depth)] if patch == 4 else [(2, width // 2, [3]), (2, width, [1, *[3] * depth])]
        stages.append((2, 2 * width, [1, *[3] * depth]))
        for stage, (factor, outputs, kernels) in enumerate(stages, start=1):
            modules[f"unshuffle{stage}"] = nn.PixelUnshuffle(factor)
            channels, side = factor**2 * channels, (side[0] // factor, side[1] // factor)
            for layer, kernel_size in enumerate(kernels, start=1):
                name = f"conv{stage}_{layer}"
                modules[name] = create_conv(key, channels, outputs, kernel_size, padding_mode=padding_mode, **factory)
                modules[f"activation{stage}_{layer}"] = MaxMin()
                channels, sizes[name] = outputs, side
        modules["flatten"] = nn.Flatten()
        modules["linear"] = create_linear(key, channels * side[0] * side[1], num_classes, **factory)
        arguments = {
            "method": key,
            "width": width,
            "num_classes": num_classes,
            "input_shape": shape,
            "depth": depth,
            "padding_mode": padding_mode,
            "patch": patch,
        }
        super().__init__(modules, sizes, arguments, shape)
