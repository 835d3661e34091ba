"""FastNet: the most certified accuracy per minute of training on CPUs.

What makes a network slow to train on a CPU is work at 32 x 32 pixels, parameter transformations in every step, and many
small operations. FastNet leaves 32 x 32 at once by moving pixels into channels, has few layers, each wide enough to
fill the processor, and orthogonal matrices that are stored as such (`stiefel`), so that a step costs little more than
that of a plain network. docs/training_fast.md has what each choice is worth.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import MaxMin, create_conv, create_linear, get_method
from onelip.models.named_network import NamedNetwork, check_counts, checked_image_shape


class FastNet(NamedNetwork):
    """Pixel unshuffle, convolution; twice: pixel unshuffle, 1 x 1, `depth` convolutions; one linear layer.

        unshuffle 2, conv 3 x 3 to w/2 channels                          16 x 16 for images of 32 x 32
        unshuffle 2, conv 1 x 1 to w, depth x [conv 3 x 3]               8 x 8
        unshuffle 2, conv 1 x 1 to 2 w, depth x [conv 3 x 3]             4 x 4
        flatten, linear to the scores

    with MaxMin behind every convolution. Every layer is the method's, and all else moves entries.

    Args:
        method: key of a method.
        width: channels at the second resolution, a multiple of 4.
        num_classes: number of scores.
        input_shape: channels, height and width of the images; the sides multiples of 8.
        depth: convolutions per resolution.
        padding_mode: zeros or circular.
        device: where to create the parameters.
        dtype: type of the parameters.
    """

    widths: ClassVar[Mapping[str, int]] = {"XS": 32, "S": 64, "M": 96, "L": 128}
    usual_size: ClassVar[str] = "S"
    method: ClassVar[str] = "stiefel"

    def __init__(
        self,
        method: str = method,
        width: int = 64,
        num_classes: int = 10,
        input_shape: Sequence[int] = (3, 32, 32),
        *,
        depth: int = 2,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape = checked_image_shape("FastNet", input_shape, 8)
        check_counts("FastNet", width=width, num_classes=num_classes, depth=depth)
        if width % 4:
            raise InvalidInputError(f"FastNet: width={width} is not supported, use a multiple of 4")
        key = get_method(method).key
        factory = {"device": device, "dtype": dtype}
        modules: OrderedDict[str, nn.Module] = OrderedDict()
        sizes = {}
        channels, side = shape[0], (shape[1], shape[2])
        for stage, (outputs, kernels) in enumerate(
            [(width // 2, [3]), (width, [1, *[3] * depth]), (2 * width, [1, *[3] * depth])], start=1
        ):
            modules[f"unshuffle{stage}"] = nn.PixelUnshuffle(2)
            channels, side = 4 * channels, (side[0] // 2, side[1] // 2)
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
        }
        super().__init__(modules, sizes, arguments, shape)
