"""LipNeXt (Hu, Hu, Fredrikson, 2026): no convolution but 1 x 1, spatial mixing by shifts, weights on the manifold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import L2NormPool2d, StiefelConv2d
from onelip.layers.blocks.combine import UnitRowsLinear
from onelip.layers.blocks.lipnext import LipNeXtBlock
from onelip.linalg.fourier import Size
from onelip.models.named_network import NamedNetwork, check_counts, checked_image_shape
from onelip.protocol import NETWORK_FACTS, NetworkInfo


class LipNeXt(NamedNetwork):
    """Patches, an orthogonal embedding, `depth` blocks of mixer, shift, mixer and fold, L2 pooling, unit rows.

    Args:
        method: "stiefel"; the mixers have no other.
        width: channels, at least those of a patch and 16.
        num_classes: number of scores.
        input_shape: channels, height and width of the images; the sides multiples of `patch`.
        depth: blocks.
        patch: side of the patches.
        shift: share of the channels that each block moves by a pixel, in four directions.
        fold: share of the channels that the activation takes the modulus of.
        device: where to create the parameters.
        dtype: type of the parameters.

    Examples:
        >>> import torch
        >>> from onelip.models import LipNeXt
        >>> LipNeXt(width=48, depth=1)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    info: ClassVar[NetworkInfo] = NETWORK_FACTS["lipnext"]

    def __init__(
        self,
        method: str = info.method,
        width: int = 128,
        num_classes: int = 10,
        input_shape: Sequence[int] = (3, 32, 32),
        *,
        depth: int = 8,
        patch: int = 4,
        shift: float = 0.25,
        fold: float = 0.5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_counts("LipNeXt", width=width, num_classes=num_classes, depth=depth, patch=patch)
        shape = checked_image_shape("LipNeXt", input_shape, patch)
        if method != "stiefel":
            raise InvalidInputError(f"LipNeXt: method={method!r} is not supported, its mixers are stiefel")
        if width < 16:
            raise InvalidInputError(f"LipNeXt: width={width} is not supported, use 16 or more")
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        modules: OrderedDict[str, nn.Module] = OrderedDict()
        modules["patches"] = nn.PixelUnshuffle(patch)
        modules["embedding"] = StiefelConv2d(shape[0] * patch**2, width, 1, **factory)
        size = shape[1] // patch, shape[2] // patch
        sizes: dict[str, Size | None] = {}
        for number in range(1, depth + 1):
            modules[f"block{number}"] = LipNeXtBlock(width, shift=shift, fold=fold, **factory)
            sizes |= {f"block{number}.mixer1": size, f"block{number}.mixer2": size}
        modules["pooling"] = L2NormPool2d(size)
        modules["flatten"] = nn.Flatten()
        modules["scores"] = UnitRowsLinear(width, num_classes, **factory)
        arguments = {
            "method": method,
            "width": width,
            "num_classes": num_classes,
            "input_shape": shape,
            "depth": depth,
            "patch": patch,
            "shift": shift,
            "fold": fold,
        }
        super().__init__(modules, sizes, arguments, shape)
