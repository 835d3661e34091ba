"""LiResNet (Hu, Zou, Wang, Leino, Fredrikson, 2023; Hu, Leino, Wang, Fredrikson, 2024) and BRONet (Lai et al., 2025).

Both are one network: a stem of stride 2, convolutions that start near the identity and are centred, a patch layer that
makes a vector, dense layers, and a last layer with rows of unit length. They differ in the convolutions. The published
LiResNet leaves them free and divides by an estimate of their norms when it certifies; here they are divided by proven
norms (`spectral`), in training as in evaluation. BRONet's are block reflectors (`bro`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import MaxMin, create_conv, create_linear, get_method
from onelip.layers.blocks.centering import BatchCentering
from onelip.layers.blocks.combine import UnitRowsLinear
from onelip.linalg.fourier import Size
from onelip.models.named_network import NamedNetwork, check_counts, checked_image_shape
from onelip.models.residual_weights import RESIDUAL_CONVOLUTIONS, ResidualCholeskyLinear
from onelip.protocol import NETWORK_FACTS, NetworkInfo

_PATCH = 4


class LiResNet(NamedNetwork):
    """Stem 5 x 5 of stride 2, `depth` convolutions 3 x 3, patches of 4 x 4, `dense` linear layers, unit rows.

    With the defaults and a width of 512 it has the 82,944,010 parameters of the published network for CIFAR-10.

    Args:
        method: key of the convolutions' method. `spectral`, `bro` and `cholesky` start as I + gamma P / sqrt(depth), as
            published; others as they start by themselves.
        width: channels, an even number.
        num_classes: number of scores.
        input_shape: channels, height and width of the images; the sides multiples of 8.
        depth: convolutions.
        dense: linear layers.
        dense_width: their features, an even number.
        padding_mode: zeros or circular.
        device: where to create the parameters.
        dtype: type of the parameters.

    Examples:
        >>> import torch
        >>> from onelip.models import LiResNet
        >>> LiResNet("spectral", width=16, depth=1, dense=1, dense_width=16)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    info: ClassVar[NetworkInfo] = NETWORK_FACTS["liresnet"]

    def __init__(
        self,
        method: str | None = None,
        width: int = 512,
        num_classes: int = 10,
        input_shape: Sequence[int] = (3, 32, 32),
        *,
        depth: int = 12,
        dense: int = 8,
        dense_width: int | None = None,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        name = type(self).__name__
        shape = checked_image_shape(name, input_shape, 2 * _PATCH)
        features = 4 * width if dense_width is None else dense_width
        check_counts(name, width=width, num_classes=num_classes, depth=depth, dense=dense, dense_width=features)
        if width % 2 or features % 2:
            raise InvalidInputError(
                f"{name}: width={width} and dense_width={features} must be even, MaxMin sorts pairs"
            )
        key = get_method(method or self.info.method).key
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        modules: OrderedDict[str, nn.Module] = OrderedDict()
        # The stem is a free convolution in both published networks.
        modules["stem"] = create_conv(
            "spectral", shape[0], width, 5, stride=2, padding=2, padding_mode="zeros", **factory
        )
        modules["stem_activation"] = MaxMin()
        size = shape[1] // 2, shape[2] // 2
        for layer in range(1, depth + 1):
            modules[f"conv{layer}"] = self._convolution(key, width, depth, padding_mode, factory)
            modules[f"centering{layer}"] = BatchCentering(width, **factory)
            modules[f"activation{layer}"] = MaxMin()
        modules["patches"] = nn.PixelUnshuffle(_PATCH)
        modules["patch_conv"] = create_conv("cholesky", width * _PATCH**2, width, 1, bias=False, **factory)
        modules["flatten"] = nn.Flatten()
        inputs = width * (size[0] // _PATCH) * (size[1] // _PATCH)
        modules["neck"] = create_linear("cholesky", inputs, features, **factory)
        modules["neck_activation"] = MaxMin()
        for layer in range(1, dense + 1):
            linear = ResidualCholeskyLinear(features, features, **factory)
            linear.scale = dense**-0.5
            modules[f"linear{layer}"] = linear
            modules[f"linear_activation{layer}"] = MaxMin()
        modules["scores"] = UnitRowsLinear(features, num_classes, **factory)
        sizes: dict[str, Size | None] = {f"conv{layer}": size for layer in range(1, depth + 1)}
        sizes |= {f"linear{layer}": None for layer in range(1, dense + 1)}
        arguments = {
            "method": key,
            "width": width,
            "num_classes": num_classes,
            "input_shape": shape,
            "depth": depth,
            "dense": dense,
            "dense_width": features,
            "padding_mode": padding_mode,
        }
        super().__init__(modules, sizes, arguments, shape)

    @staticmethod
    def _convolution(key: str, width: int, depth: int, padding_mode: str, factory: dict[str, Any]) -> nn.Module:
        """Without a bias, which the centering behind it has."""
        if key not in RESIDUAL_CONVOLUTIONS:
            return create_conv(key, width, width, 3, padding_mode=padding_mode, bias=False, **factory)
        make: Any = RESIDUAL_CONVOLUTIONS[key]
        conv = make(width, width, 3, padding_mode=padding_mode, bias=False, **factory)
        conv.scale = depth**-0.5
        return conv


class BRONet(LiResNet):
    """LiResNet with block reflectors of rank width / 2: 68,788,234 parameters at a width of 512 for CIFAR-10.

    Examples:
        >>> import torch
        >>> from onelip.models import BRONet
        >>> BRONet(width=16, depth=1, dense=1, dense_width=16)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    info: ClassVar[NetworkInfo] = NETWORK_FACTS["bronet"]
