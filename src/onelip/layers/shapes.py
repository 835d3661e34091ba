"""Base classes of convolutions and linear layers: torch's signatures, channel counts, groups and geometry.

Around the core of a method stand maps that cannot increase a distance. Stride, padding, dilation and transposition are
those of `onelip.layers.geometry`. Groups have a core each, whose parameters are stacked. A method whose core must be
square gets zero channels appended to its input or its last channels cut off.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.arguments import (
    check_device_and_dtype,
    check_groups,
    check_numbers,
    check_positive,
    check_type,
    read_geometry,
    warn_of_squares,
)
from onelip.layers.base import LipschitzLayer
from onelip.layers.bounded import proven_bound
from onelip.layers.convolution import PaddingMode
from onelip.layers.fused import FusedConvolution, FusedLayer
from onelip.layers.geometry import Geometry, Surroundings
from onelip.layers.initialisation import INITIALISATIONS, identity_or_orthogonal, initialise
from onelip.layers.reshape import FirstChannels, ZeroChannelPad, ZeroSpatialPad
from onelip.layers.strides import taps_of_blocks, taps_on_blocks
from onelip.layers.transformed import Grouped, Transformed
from onelip.linalg.device_forms import suits_cpu
from onelip.linalg.fourier import Size
from onelip.linalg.layer_bound import LayerBound
from onelip.linalg.measured_rounding import behind

COARSE = 16
"""Frequencies along each axis that an estimate looks at."""


class LayerOptions(TypedDict, total=False):
    """Arguments that every layer takes by name only."""

    init: str
    lipschitz: float
    device: torch.device | str | None
    dtype: torch.dtype | None


WIDEST_TOGETHER = 256
"""Channels up to which equal layers are transformed together on CPUs. From 512 on they take 0.79 to 1.0 of the time one
by one (BCOP, ONI, Bjorck, ECO, Stiefel: 0.9; two threads)."""


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
        positive = isinstance(lipschitz, Real) and 0 < lipschitz < math.inf
        if not positive or (lipschitz != 1 and not self.has_guarantee):
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

    def transforms_alone(self, size: Size | None) -> bool:
        """Wide layers on CPUs, whose products occupy all threads by themselves."""
        is_wide = min(self.core_in, self.core_out) > WIDEST_TOGETHER
        return is_wide and self.transforms_parameters and suits_cpu(self.weight.device)

    def reset_parameters(self) -> None:
        """Draw new values for all parameters."""
        self.start()

    def start(self) -> None:
        """Draw the parameters of a core as `init` says; the bias starts at zero, unless `init` is "published"."""
        if self.init == "published":
            self.start_as_published()
            return
        self.start_weight(self.default_init() if self.init == "auto" else self.init)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def start_weight(self, name: str) -> None:
        """Draw the weight by the name of a start."""
        initialise(self.weight, name)

    def start_as_published(self) -> None:
        """Weights and biases as the comparison paper's code starts them: here those of AOL and LOT."""
        self.start_weight(identity_or_orthogonal(self.core_out, self.core_in))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def default_init(self) -> str:
        """What init="auto" means for this layer: the comparison paper's choice for AOL and LOT.

        Torch's own start contracts by 0.58 per layer; a deep network of such layers learns next to nothing at first.
        """
        return identity_or_orthogonal(self.core_out, self.core_in)

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
        with self.in_mode(False), torch.no_grad():
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
        """As `nn.Linear`.

        Args:
            in_features: size of the last dimension of the input.
            out_features: size of the last dimension of the output.
            bias: whether a bias is added.
            init: the start: "auto" is the method's own, else a name of `initialisations`.
            lipschitz: the constant that is guaranteed.
            device: where the parameters are.
            dtype: type of the parameters.
        """
        check_positive(self, in_features=in_features, out_features=out_features)
        check_device_and_dtype(self, device, dtype)
        super().__init__(in_features, out_features, init, lipschitz)
        self.in_features, self.out_features = in_features, out_features
        self.create_parameters(bias, {"device": device, "dtype": dtype})
        self.reset_parameters()
        warn_of_squares(self, in_features * out_features)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(core_out, core_in)."""
        return self.core_out, self.core_in

    def apply_to(self, x: Tensor, transformed: Transformed) -> Tensor:
        """The input transformation on (..., in_features)."""
        y = transformed.apply(self._core_input(x), self.bias)
        return y[..., : self.out_features] if self.core_out > self.out_features else y

    def _core_input(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, self.core_in - self.in_features)) if self.core_in > self.in_features else x

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        check_numbers(self, x)
        if not x.dim() or x.shape[-1] != self.in_features:
            raise InvalidInputError(
                f"{type(self).__name__} expects {self.in_features} features in the last dimension, got {tuple(x.shape)}"
            )
        check_type(self, x, next(self.parameters()))
        return self.apply_to(x, self.transformed())

    def lipschitz_bound(self, input_size: Size | None = None) -> float:
        """Proven upper bound of the Lipschitz constant in evaluation mode, rounding included."""
        return proven_bound(self, (self.in_features,)).lipschitz

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the core: zero features that are appended and outputs that are cut off change no distance."""
        return behind(self._core_input, self.deployed().bound((*input_shape[:-1], self.core_in), self.bias))

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

    `stride=s` is torch's: every s pixels, with k * k taps (`onelip.layers.strides`). With padding "same" an image whose
    side s does not divide is padded with zeros to the next multiple. `groups=g` gives each group of channels a layer of
    its own. `dilation` and an integer `padding` mean what they do in torch; a stride and a dilation with a common
    divisor would skip pixels, circular padding beyond "same" would repeat some, and both are refused. The kernel may
    have even sides, padded as "same" does.
    """

    padding_modes: ClassVar[tuple[PaddingMode, ...]] = ("circular", "zeros")

    signal: ClassVar[bool] = False
    """Whether inputs are (batch, channels, length) in place of images."""

    has_torch_taps: ClassVar[bool] = True
    """Whether the kernel has torch's taps, (out, in, kh, kw), or those of the core, as that of square methods has."""

    holds_for_volumes: ClassVar[bool] = False
    """Whether the constraint is one of a kernel: its norm, or products of taps (`onelip.layers.volumes`)."""

    gram_power: int = 1
    """The power of the autocorrelation that the constraint looks at, which reaches so many times as far."""

    orthogonal_by_rank: ClassVar[bool] = False
    """Whether the layer is orthogonal only if kernels like its own can have full rank."""

    keeps_taps: ClassVar[bool] = False
    """Whether the transformation leaves taps zero that are: the layer then reads the pixels that torch's would."""

    geometry: Geometry

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
        """As `nn.Conv2d`.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            kernel_size: taps, one number or (rows, columns), even or odd.
            stride: pixels between outputs.
            padding: "same", "valid", or as many pixels on each side as torch would add.
            dilation: pixels between taps.
            groups: parts of the channels that do not see each other; divides both numbers of channels.
            bias: whether a bias is added.
            padding_mode: "circular" or "zeros".
            init: the start: "auto" is the method's own, else a name of `initialisations`.
            lipschitz: the constant that is guaranteed.
            device: where the parameters are.
            dtype: type of the parameters.
        """
        check_positive(self, in_channels=in_channels, out_channels=out_channels)
        check_groups(self, in_channels, out_channels, groups)
        check_device_and_dtype(self, device, dtype)
        if padding_mode not in self.padding_modes:
            allowed = " or ".join(repr(mode) for mode in self.padding_modes)
            raise InvalidInputError(
                f"{type(self).__name__}: padding_mode={padding_mode!r} is not supported, use {allowed}"
            )
        geometry = self.read_geometry(kernel_size, stride, padding, dilation, padding_mode == "circular")
        pixels = self.pixels_per_output(geometry)
        before, after = (1, pixels) if geometry.transposed else (pixels, 1)
        super().__init__(in_channels // groups * before, out_channels // groups * after, init, lipschitz)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.geometry = geometry
        self.kernel_size, self.stride, self.dilation = geometry.kernel_size, geometry.stride, geometry.dilation
        self.padding = "same" if geometry.padding is None else geometry.padding
        self.padding_mode: PaddingMode = padding_mode
        self.check_stride()
        self.create_parameters(bias, {"device": device, "dtype": dtype})
        self.weight_has_taps = len(self.weight_shape) == 4
        self._surroundings = self._make_surroundings()
        if groups > 1:
            self._create_groups()
        self.reset_parameters()
        plain = self.in_channels * self.out_channels // groups * math.prod(self.kernel_size)
        warn_of_squares(self, plain)

    def read_geometry(self, kernel_size: Any, stride: Any, padding: Any, dilation: Any, circular: bool) -> Geometry:
        """The geometry of these arguments."""
        return read_geometry(self, kernel_size, stride, padding, dilation, circular)

    def pixels_per_output(self, geometry: Geometry) -> int:
        """How many pixels the stride makes one of."""
        return math.prod(geometry.stride)

    @property
    def coarse_torus(self) -> Size:
        """A torus of few frequencies, at which estimates of norms look; those of 1, 2, 4 and 8 are among them."""
        return COARSE if self.core_kernel[0] > 1 else 1, COARSE if self.core_kernel[1] > 1 else 1

    @property
    def core_kernel(self) -> Size:
        """Height and width of the kernel of the core: even sides are embedded in the next odd ones."""
        high, wide = self.geometry.core_sides
        return high // 2 * 2 + 1, wide // 2 * 2 + 1

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(out / groups, in / groups, kh, kw), or (core_out, core_in, mh, mw) where the taps are those of the core."""
        if not self._takes_torch_taps:
            return self.core_out, self.core_in, *self.geometry.core_sides
        return self.out_channels // self.groups, self.in_channels // self.groups, *self.kernel_size

    @property
    def _takes_torch_taps(self) -> bool:
        return self.has_torch_taps and not self.square

    def check_stride(self) -> None:
        """Refuse a kernel of an orthogonal method that skips pixels and has more outputs than it reads inputs."""
        read = math.prod(min(k, s) for k, s in zip(self.kernel_size, self.stride, strict=True))
        inputs, outputs = self.in_channels // self.groups, self.out_channels // self.groups
        few, many = (outputs, inputs) if self.geometry.transposed else (inputs, outputs)
        if self.orthogonal_by_rank and read < math.prod(self.stride) and many > read * few:
            raise InvalidInputError(
                f"{type(self).__name__}: no convolution of {inputs} to {outputs} channels with "
                f"kernel_size={self.kernel_size} and stride={self.stride} is orthogonal, because it skips pixels; "
                "use a kernel_size of at least the stride"
            )

    def start_weight(self, name: str) -> None:
        """Draw the weight: that of the core, by which a strided layer reads whole blocks of pixels at the start."""
        if self.stride == (1, 1) or not self.weight_has_taps or not self._takes_torch_taps:
            super().start_weight(name)
            return
        core = self.weight.new_empty(self.core_out, self.core_in, *self.geometry.core_sides)
        initialise(core, name)
        if self.geometry.transposed:
            core = core.transpose(0, 1)
        taps = taps_of_blocks(core, self.stride, self.kernel_size)
        with torch.no_grad():
            self.weight.copy_(taps.transpose(0, 1) if self.geometry.transposed else taps)

    @property
    def surroundings(self) -> Surroundings:
        """What stands around the core."""
        return self._surroundings

    def _make_surroundings(self) -> Surroundings:
        pixels = math.prod(self.stride) if self.geometry.transposed else 1
        kept = self.out_channels // self.groups * pixels
        (high, wide), stride = self.geometry.core_sides, self.stride
        taps = self.kernel_size if self.keeps_taps else (high * stride[0], wide * stride[1])
        return Surroundings(self.geometry, self.groups, self.core_in, kept, taps, self.signal)

    def _create_groups(self) -> None:
        """Parameters and buffers of all groups in the place of those of one: stacked, the biases one after another."""
        for name, value in list(self._parameters.items()):
            if value is not None:
                self.register_parameter(name, nn.Parameter(value.new_empty(self._grouped_shape(name, value))))
        for name, value in list(self._buffers.items()):
            if value is not None:
                self.register_buffer(name, value.new_empty(self._grouped_shape(name, value)))

    def _grouped_shape(self, name: str, tensor: Tensor) -> tuple[int, ...]:
        return (self.groups * len(tensor),) if name == "bias" else (self.groups, *tensor.shape)

    def reset_parameters(self) -> None:
        """Draw new values for the parameters of every group."""
        if self.groups == 1:
            self.start()
            return
        parameters, buffers = dict(self._parameters), dict(self._buffers)
        try:
            for group in range(self.groups):
                for name, value in parameters.items():
                    part = self._group(name, value, group)
                    self._parameters[name] = None if part is None else nn.Parameter(part)
                self._buffers.update({name: self._group(name, value, group) for name, value in buffers.items()})
                self.start()
        finally:
            self._parameters.update(parameters)
            self._buffers.update(buffers)

    def _group(self, name: str, tensor: Tensor | None, group: int) -> Tensor | None:
        """The part of one group, as a view."""
        if tensor is None:
            return None
        return tensor.detach().chunk(self.groups)[group] if name == "bias" else tensor.detach()[group]

    def transform_given(
        self, tensors: Mapping[str, Tensor], size: Size | None, *, cheapest_form: bool = True
    ) -> Transformed:
        """`transform` of the tensors given; the groups, which have a leading dimension too, as one batch."""
        own = self.tensors_to_transform()
        if self.weight_has_taps:
            tensors = {**tensors, "weight": self.core_taps(tensors["weight"])}
        if self.groups == 1:
            return super().transform_given(tensors, size, cheapest_form=cheapest_form)
        name, tensor = next(iter(tensors.items()))
        stacked = tensor.dim() - own[name].dim()
        together = {name: tensor.flatten(0, stacked) for name, tensor in tensors.items()}
        cores = super().transform_given(together, size, cheapest_form=cheapest_form)
        if stacked:
            cores = cores.map(lambda tensor: tensor.unflatten(0, (-1, self.groups)))
        return Grouped(cores, self.groups)

    def core_taps(self, kernel: Tensor) -> Tensor:
        """The kernel of the core from that of `weight_shape`, taps in torch's order.

        Even sides get a zero before their taps, as "same" pads one pixel fewer there than behind. The taps of a
        transposed convolution say where an input goes, those of its core where an output comes from: reversed.
        """
        if self.stride != (1, 1) and self._takes_torch_taps:
            kernel = taps_on_blocks(kernel, self.stride, transposed=self.geometry.transposed)
        missing = self.core_kernel[0] - kernel.shape[-2], self.core_kernel[1] - kernel.shape[-1]
        kernel = kernel if missing == (0, 0) else F.pad(kernel, (missing[1], 0, missing[0], 0))
        return kernel.flip(-2, -1) if self.geometry.transposed else kernel

    def core_size(self, input_size: Size | None) -> Size | None:
        """The size of the images that the core sees."""
        size = super().core_size(input_size)
        return None if size is None else self.geometry.core_image(size)

    def apply_to(self, x: Tensor, transformed: Transformed) -> Tensor:
        """The input transformation on (batch, in_channels, height, width)."""
        return self.surroundings.apply(x, transformed, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w), or one image (in_channels, h, w), as `nn.Conv2d` does."""
        check_numbers(self, x)
        axes = 1 if self.signal else 2
        if x.dim() not in (axes + 1, axes + 2) or x.shape[-axes - 1] != self.in_channels:
            sides = "length" if self.signal else "height, width"
            raise InvalidInputError(
                f"{type(self).__name__} expects (batch, {self.in_channels}, {sides}), got {tuple(x.shape)}"
            )
        check_type(self, x, self.weight)
        if x.dim() == axes + 1:
            return self.forward(x[None])[0]
        return self.apply_to(x, self.transformed(self.surroundings.image(x.shape)))

    def lipschitz_bound(self, input_size: Size | None = None) -> float:
        """Proven upper bound of the Lipschitz constant in evaluation mode on images of this size, rounding included."""
        if input_size is None:
            raise InvalidInputError(
                f"the bound of {type(self).__name__} depends on the image: pass input_size=(height, width)"
            )
        sides = (int(input_size[1]),) if self.signal else (int(input_size[0]), int(input_size[1]))
        return proven_bound(self, (self.in_channels, *sides)).lipschitz

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """That of the core, on all that it is applied to."""
        surroundings = self.surroundings
        return surroundings.bound(input_shape, self.deployed(surroundings.image(input_shape)), self.bias)

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """Plain modules with the same outputs and no parameter transformation.

        `input_size` is the height and width of this layer's input; it is needed where the transformed
        parameters depend on it, unless the layer has been evaluated on exactly one size since it last changed.
        """
        transformed, geometry = self._detached(input_size), self.geometry
        step = self.stride[0]
        simple = geometry == Geometry(self.kernel_size, (step, step), None, (1, 1), geometry.circular)
        if self.groups > 1 or self.signal or not simple or not geometry.is_aligned:
            return FusedConvolution(self.surroundings, transformed, self.bias)
        core = self.fuse_core(transformed, None if input_size is None else geometry.core_image(input_size))
        before, after = [], []
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
        text += f", padding={self.padding}"
        text += "" if self.dilation == (1, 1) else f", dilation={self.dilation}"
        text += "" if self.groups == 1 else f", groups={self.groups}"
        text += f", bias={self.bias is not None}, padding_mode={self.padding_mode}"
        return text if self.lipschitz == 1 else f"{text}, lipschitz={self.lipschitz}"
