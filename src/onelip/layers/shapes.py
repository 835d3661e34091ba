"""Base classes of convolutions and linear layers: torch's signatures, channel counts, strides and paddings.

Around the core of a method stand isometries only. A stride of s is a pixel unshuffle by s, after which the
core acts on s * s * in channels. A method whose core must be square gets zero channels appended to its input
or its last channels cut off. Neither can increase a distance.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.base import LipschitzLayer
from onelip.layers.bounded import proven_bound
from onelip.layers.convolution import PaddingMode
from onelip.layers.fused import FusedLayer
from onelip.layers.initialisation import INITIALISATIONS, identity_or_orthogonal, initialise
from onelip.layers.reshape import FirstChannels, ZeroChannelPad, ZeroSpatialPad
from onelip.layers.transformed import Transformed
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound


class LayerOptions(TypedDict, total=False):
    """Arguments that every layer takes by name only."""

    init: str
    lipschitz: float
    device: torch.device | str | None
    dtype: torch.dtype | None


class ParametrisedLayer(LipschitzLayer):
    """What convolutions and linear layers share: options, channel counts of the core, fusing."""

    square: ClassVar[bool] = False
    """Whether the core needs as many inputs as outputs."""

    initialisations: ClassVar[tuple[str, ...]] = INITIALISATIONS
    """Names that `init` accepts; "auto" is the method's default."""

    fuses_cheapest_form: ClassVar[bool] = True
    """Whether `fuse_core` wants the parameters in the form of `choose_form`, or as `transform_tensors` gives them."""

    keeps_directions: ClassVar[bool] = False
    """Whether the transformation rescales or projects `weight`: trained weights of a plain layer are a start then."""

    has_guarantee: ClassVar[bool] = True
    """Whether the constant is limited at all; it is not for the baseline."""

    weight: nn.Parameter

    def __init__(self, in_core: int, out_core: int, init: str, lipschitz: float) -> None:
        super().__init__()
        if not 0 < lipschitz < math.inf or (lipschitz != 1 and not self.has_guarantee):
            allowed = "a positive number" if self.has_guarantee else "1: it guarantees no constant"
            raise InvalidInputError(f"{type(self).__name__}: lipschitz={lipschitz!r} is not supported, use {allowed}")
        self.lipschitz = float(lipschitz)
        if init not in self.initialisations:
            raise InvalidInputError(
                f"{type(self).__name__}: init={init!r} is not known, use one of {', '.join(self.initialisations)}"
            )
        self.init = init
        width = max(in_core, out_core)
        self.core_in = width if self.square else in_core
        self.core_out = width if self.square else out_core

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of the unconstrained matrix or kernel that maps core_in to core_out channels."""

    def create_parameters(self, bias: bool, factory: dict[str, Any]) -> None:
        """Register every parameter and buffer, `bias` included (None without one), uninitialised.

        The default is one `weight` and a bias per output of the core.
        """
        self.weight = nn.Parameter(torch.empty(self.weight_shape, **factory))
        self.create_bias(self.core_out, bias, factory)

    def reset_parameters(self) -> None:
        """Draw new values for all parameters as `init` says; the bias starts at zero, unless `init` is "published"."""
        if self.init == "published":
            self.start_as_published()
            return
        initialise(self.weight, self.default_init() if self.init == "auto" else self.init)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def start_as_published(self) -> None:
        """Weights and biases as the comparison paper's code starts them: here those of AOL and LOT."""
        initialise(self.weight, identity_or_orthogonal(self.weight))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def default_init(self) -> str:
        """What init="auto" means for this layer: the comparison paper's choice for AOL and LOT.

        Torch's own start contracts by 0.58 per layer; a deep network of such layers learns next to nothing at first.
        """
        return identity_or_orthogonal(self.weight)

    def fuse_core(self, transformed: Transformed, size: Size | None) -> nn.Module:
        """Module that equals `transformed.apply`, a plain one of torch where there is one.

        `size` is that of the image which the core sees, None where it was not told.
        """
        return FusedLayer(transformed, self.bias)

    def create_bias(self, size: int, bias: bool, factory: dict[str, Any]) -> None:
        """Register `bias` with `size` entries, or as None."""
        self.register_parameter("bias", nn.Parameter(torch.zeros(size, **factory)) if bias else None)

    def _detached(self, input_size: Size | None) -> Transformed:
        """Detached copies of the transformed parameters, for the size given or the only one evaluated so far."""
        only_size = input_size is None and len(self._cache) == 1
        size = next(iter(self._cache)) if only_size else self.core_size(input_size)
        with self._evaluating(), torch.no_grad():
            transformed = self.transform_given(
                self.tensors_to_transform(), size, cheapest_form=self.fuses_cheapest_form
            )
        return transformed.map(lambda tensor: tensor.detach().clone())


class LipschitzLinear(ParametrisedLayer):
    """Base of the linear layers: `Linear(in_features, out_features, bias=True)` as in torch."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        init: str = "auto",
        lipschitz: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_positive(self, in_features=in_features, out_features=out_features)
        super().__init__(in_features, out_features, init, lipschitz)
        self.in_features, self.out_features = in_features, out_features
        self.create_parameters(bias, {"device": device, "dtype": dtype})
        self.reset_parameters()

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(core_out, core_in)."""
        return self.core_out, self.core_in

    def apply_to(self, x: Tensor, transformed: Transformed) -> Tensor:
        """The input transformation on (..., in_features)."""
        if self.core_in > self.in_features:
            x = F.pad(x, (0, self.core_in - self.in_features))
        y = transformed.apply(x, self.bias)
        return y[..., : self.out_features] if self.core_out > self.out_features else y

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        if x.shape[-1] != self.in_features:
            raise InvalidInputError(
                f"{type(self).__name__} expects {self.in_features} features in the last dimension, got {x.shape[-1]}"
            )
        return self.apply_to(x, self.transformed())

    def lipschitz_bound(self, input_size: Size | None = None) -> float:
        """Proven upper bound of the Lipschitz constant in evaluation mode, rounding included."""
        return proven_bound(self, (self.in_features,)).lipschitz

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the core: zero features that are appended and outputs that are cut off change no distance."""
        return self.deployed().bound((*input_shape[:-1], self.core_in), self.bias)

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """Plain modules with the same outputs and no parameter transformation."""
        core = self.fuse_core(self._detached(None), None)
        before = [ZeroChannelPad(self.core_in, dim=-1)] if self.core_in > self.in_features else []
        after = [FirstChannels(self.out_features, dim=-1)] if self.core_out > self.out_features else []
        return nn.Sequential(*before, core, *after) if before or after else core

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return text if self.lipschitz == 1 else f"{text}, lipschitz={self.lipschitz}"


class LipschitzConv2d(ParametrisedLayer):
    """Base of the convolutions, with the signature of `nn.Conv2d` and the defaults "same" and "circular".

    `stride=s` unshuffles pixels by s and convolves the s * s * in channels, so that no input is skipped;
    an image whose side s does not divide is padded with zeros to the next multiple.
    """

    padding_modes: ClassVar[tuple[PaddingMode, ...]] = ("circular", "zeros")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Size,
        stride: int | Size = 1,
        padding: str | int | Size = "same",
        dilation: int | Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "circular",
        *,
        init: str = "auto",
        lipschitz: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_positive(self, in_channels=in_channels, out_channels=out_channels)
        side = _one_number(self, "kernel_size", kernel_size)
        step = _one_number(self, "stride", stride)
        self._check_options(side, step, padding, dilation, groups, padding_mode)
        super().__init__(in_channels * step * step, out_channels, init, lipschitz)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = (side, side), (step, step)
        self.padding, self.dilation, self.groups = "same", (1, 1), 1
        self.padding_mode: PaddingMode = padding_mode
        self.create_parameters(bias, {"device": device, "dtype": dtype})
        self.reset_parameters()

    def _check_options(self, side: int, step: int, padding: Any, dilation: Any, groups: int, padding_mode: str) -> None:
        name = type(self).__name__
        if side < 1 or side % 2 == 0:
            raise InvalidInputError(
                f"{name}: kernel_size={side} is not supported, use an odd number such as 1, 3, 5, 7"
            )
        if step < 1:
            raise InvalidInputError(f"{name}: stride={step} is not supported, use a positive number")
        if padding not in ("same", side // 2, (side // 2, side // 2)):
            raise InvalidInputError(
                f'{name}: padding={padding!r} is not supported, use "same" or {side // 2} for kernel size {side}'
            )
        if dilation not in (1, (1, 1)) or groups != 1:
            raise InvalidInputError(f"{name}: dilation={dilation}, groups={groups} is not supported, use 1 for both")
        if padding_mode not in self.padding_modes:
            allowed = " or ".join(repr(mode) for mode in self.padding_modes)
            raise InvalidInputError(f"{name}: padding_mode={padding_mode!r} is not supported, use {allowed}")

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(core_out, core_in, k, k)."""
        return self.core_out, self.core_in, *self.kernel_size

    def core_size(self, input_size: Size | None) -> Size | None:
        """The size of the image that the core sees, after the stride."""
        size = super().core_size(input_size)
        return None if size is None else self.strided(size)

    def strided(self, input_size: Size) -> Size:
        """Height and width after the stride, rounded up."""
        return -(-input_size[0] // self.stride[0]), -(-input_size[1] // self.stride[1])

    def apply_to(self, x: Tensor, transformed: Transformed) -> Tensor:
        """The input transformation on (batch, in_channels, height, width)."""
        step = self.stride[0]
        if step > 1:
            x = F.pixel_unshuffle(F.pad(x, (0, -x.shape[-1] % step, 0, -x.shape[-2] % step)), step)
        if self.core_in > x.shape[1]:
            x = F.pad(x, (0, 0, 0, 0, 0, self.core_in - x.shape[1]))
        y = transformed.apply(x, self.bias)
        return y[:, : self.out_channels] if self.core_out > self.out_channels else y

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w), or one image (in_channels, h, w), as `nn.Conv2d` does."""
        if x.dim() not in (3, 4) or x.shape[-3] != self.in_channels:
            raise InvalidInputError(
                f"{type(self).__name__} expects (batch, {self.in_channels}, height, width), got {tuple(x.shape)}"
            )
        if x.dim() == 3:
            return self.forward(x[None])[0]
        return self.apply_to(x, self.transformed((x.shape[-2], x.shape[-1])))

    def lipschitz_bound(self, input_size: Size | None = None) -> float:
        """Proven upper bound of the Lipschitz constant in evaluation mode on images of this size, rounding included."""
        if input_size is None:
            raise InvalidInputError(
                f"the bound of {type(self).__name__} depends on the image: pass input_size=(height, width)"
            )
        return proven_bound(self, (self.in_channels, int(input_size[0]), int(input_size[1]))).lipschitz

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the core: unshuffled pixels, zeros that are appended and outputs that are cut off expand nothing."""
        size = input_shape[-2], input_shape[-1]
        return self.deployed(size).bound((self.core_in, *self.strided(size)), self.bias)

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """Plain modules with the same outputs and no parameter transformation.

        `input_size` is the height and width of this layer's input; it is needed where the transformed
        parameters depend on it, unless the layer has been evaluated on exactly one size since it last changed.
        """
        core = self.fuse_core(self._detached(input_size), None if input_size is None else self.strided(input_size))
        before, after = [], []
        step = self.stride[0]
        if step > 1:
            before += [ZeroSpatialPad(step), nn.PixelUnshuffle(step)]
        if self.core_in > self.in_channels * step * step:
            before.append(ZeroChannelPad(self.core_in))
        if self.core_out > self.out_channels:
            after.append(FirstChannels(self.out_channels))
        return nn.Sequential(*before, core, *after) if before or after else core

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding}, bias={self.bias is not None}, padding_mode={self.padding_mode}"
        return text if self.lipschitz == 1 else f"{text}, lipschitz={self.lipschitz}"


def _check_positive(layer: nn.Module, **numbers: int) -> None:
    for name, number in numbers.items():
        if type(number) is not int or number < 1:
            raise InvalidInputError(f"{type(layer).__name__}: {name}={number!r} must be a positive integer")


def _one_number(layer: nn.Module, name: str, value: int | Size) -> int:
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(numbers) != 2 or any(type(number) is not int for number in numbers) or numbers[0] != numbers[1]:
        raise InvalidInputError(f"{type(layer).__name__}: {name}={value!r} must be one integer or two equal ones")
    return numbers[0]
