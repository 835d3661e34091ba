"""Base of the convolutions, with the signature of `nn.Conv2d`.

Around the core of a method stand maps that cannot increase a distance. Stride, padding, dilation and transposition are
those of `onelip.layers.geometry`. Groups have a core each, whose parameters are stacked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

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
from onelip.layers.blocks.reshape import FirstChannels, ZeroChannelPad, ZeroSpatialPad
from onelip.layers.contract import Request
from onelip.layers.frequency_choice import frequencies_are_cheaper
from onelip.layers.fused import FusedLayer, frozen_conv
from onelip.layers.geometry import ConvolutionGeometry, Geometry
from onelip.layers.initialisation import initialise
from onelip.layers.layer import LipschitzLayer
from onelip.layers.memory_format import in_format_of
from onelip.layers.operator_cache import convolved, remember_pass, repeated_pass
from onelip.layers.operators import Framed, Grouped, Kernel, Operator
from onelip.linalg.block_taps import block_taps, taps_of_blocks
from onelip.linalg.convolution import PaddingMode
from onelip.linalg.fourier import Size
from onelip.proofs.bounded import proven_bound
from onelip.proofs.layer_bound import LayerBound

COARSE = 16
"""Frequencies along each axis that an estimate looks at."""


class LipschitzConv2d(LipschitzLayer):
    """`nn.Conv2d` but for two defaults, padding="same" and padding_mode="circular": the base of the convolutions.

    `stride=s` is torch's: every s pixels, with k * k taps (`onelip.linalg.block_taps`). With padding "same" an image
    whose side s does not divide is padded with zeros to the next multiple. `groups=g` gives each group of channels a
    layer of its own. `dilation` and an integer `padding` mean what they do in torch; a stride and a dilation with a
    common divisor would skip pixels, circular padding beyond "same" would repeat some, and both are refused. The kernel
    may have even sides, padded as "same" does.

    Examples:
        >>> import torch
        >>> from onelip.layers import BCOPConv2d
        >>> layer = BCOPConv2d(3, 16, kernel_size=3, stride=2)  # a subclass
        >>> layer(torch.rand(8, 3, 32, 32)).shape
        torch.Size([8, 16, 16, 16])
        >>> layer.lipschitz_bound((32, 32)) <= 1 + 1e-5
        True
    """

    padding_modes: ClassVar[tuple[PaddingMode, ...]] = ("circular", "zeros")

    axes: ClassVar[tuple[str, ...]] = ("height", "width")
    """Of the inputs, behind their channels: those of images, signals or volumes."""

    gram_power: int = 1
    """The power of the autocorrelation that the constraint looks at, which reaches so many times as far."""

    keeps_taps: ClassVar[bool] = False
    """Whether the transformation leaves taps zero that are: the layer then reads the pixels that torch's would."""

    has_frequency_form: ClassVar[bool] = False
    """Whether the operator is, or has inside, a kernel that may be applied frequency by frequency."""

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
        self.create_tensors(bias, {"device": device, "dtype": dtype})
        self.weight_has_taps = len(self.tensor_shapes()["weight"]) == 4
        self.convolution_geometry = self.make_convolution_geometry()
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

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """(out / groups, in / groups, kh, kw), or (core_out, core_in, mh, mw) where the taps are those of the core."""
        if self._takes_torch_taps:
            weight = (self.out_channels // self.groups, self.in_channels // self.groups, *self.kernel_size)
        else:
            weight = (self.core_out, self.core_in, *self.geometry.core_sides)
        return {"weight": weight, "bias": (self.core_out,)}

    @property
    def _takes_torch_taps(self) -> bool:
        return self.traits.has_torch_taps and not self.traits.square

    def check_stride(self) -> None:
        """Refuse a kernel of an orthogonal method that skips pixels and has more outputs than it reads inputs."""
        read = math.prod(min(k, s) for k, s in zip(self.kernel_size, self.stride, strict=True))
        inputs, outputs = self.in_channels // self.groups, self.out_channels // self.groups
        few, many = (outputs, inputs) if self.geometry.transposed else (inputs, outputs)
        if self.traits.orthogonal_by_rank and read < math.prod(self.stride) and many > read * few:
            raise InvalidInputError(
                f"{type(self).__name__}: no convolution of {inputs} to {outputs} channels with "
                f"kernel_size={self.kernel_size} and stride={self.stride} is orthogonal, because it skips pixels; "
                "use a kernel_size of at least the stride"
            )

    def initialise_weight(self, weight: Tensor, name: str) -> None:
        """Draw the weight: that of the core, by which a strided layer reads whole blocks of pixels at the start."""
        if self.stride == (1, 1) or not self.weight_has_taps or not self._takes_torch_taps:
            super().initialise_weight(weight, name)
            return
        core = weight.new_empty(self.core_out, self.core_in, *self.geometry.core_sides)
        initialise(core, name)
        if self.geometry.transposed:
            core = core.transpose(0, 1)
        taps = taps_of_blocks(core, self.kernel_size, self.stride, (1, 1))
        weight.copy_(taps.transpose(0, 1) if self.geometry.transposed else taps)

    def make_convolution_geometry(self) -> Any:
        """The frame around the core, a `ConvolutionGeometry`, or a `VolumeGeometry`."""
        pixels = math.prod(self.stride) if self.geometry.transposed else 1
        kept = self.out_channels // self.groups * pixels
        (high, wide), stride = self.geometry.core_sides, self.stride
        taps = self.kernel_size if self.keeps_taps else (high * stride[0], wide * stride[1])
        return ConvolutionGeometry(self.geometry, self.groups, self.core_in, kept, taps, len(self.axes) == 1)

    def core_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Kernels as the core has them; groups, which have a leading dimension too, as more layers."""
        if self.weight_has_taps:
            tensors = {**tensors, "weight": self.core_taps(tensors["weight"])}
        if self.groups == 1:
            return tensors
        last = 1 if self._are_stacked(tensors) else 0
        return {name: tensor.flatten(0, last) for name, tensor in tensors.items()}

    def of_groups(self, cores: Operator, tensors: Mapping[str, Tensor]) -> Operator:
        """The cores side by side."""
        if self.groups == 1:
            return cores
        if self._are_stacked(tensors):
            cores = cores.map(lambda tensor: tensor.unflatten(0, (-1, self.groups)))
        return Grouped(cores, self.groups)

    def _are_stacked(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether these are tensors of several layers."""
        name, tensor = next(iter(tensors.items()))
        return tensor.dim() > self.tensors_to_transform()[name].dim()

    def core_taps(self, kernel: Tensor) -> Tensor:
        """The kernel of the core from that of the weight, taps in torch's order.

        Even sides get a zero before their taps, as "same" pads one pixel fewer there than behind. The taps of a
        transposed convolution say where an input goes, those of its core where an output comes from: reversed.
        """
        if self.stride != (1, 1) and self._takes_torch_taps:
            # Transposed, it is the outputs that are shuffled.
            turned = kernel.transpose(-4, -3) if self.geometry.transposed else kernel
            turned = block_taps(turned, self.stride, (1, 1))
            kernel = turned.transpose(-4, -3) if self.geometry.transposed else turned
        missing = self.core_kernel[0] - kernel.shape[-2], self.core_kernel[1] - kernel.shape[-1]
        kernel = kernel if missing == (0, 0) else F.pad(kernel, (missing[1], 0, missing[0], 0))
        return kernel.flip(-2, -1) if self.geometry.transposed else kernel

    def core_size(self, input_size: Size | None) -> Size | None:
        """The size of the images that the core sees, where the operator depends on it."""
        if self.size_dependent:
            message = "the parameters of {} are transformed for one {} size: pass input_size={}, or evaluate the layer "
            return self.convolution_geometry.core_image(self._checked_size(input_size, message + "on one size first"))
        size = input_size if input_size is None else self.convolution_geometry.core_image(input_size)
        return size if size is not None and self.acts_on_frequencies(size) else None

    def acts_on_frequencies(self, size: Size) -> bool:
        """Whether a kernel is applied frequency by frequency to core images of this size."""
        return self.has_frequency_form and frequencies_are_cheaper(self, size)

    def choose_form(self, operator: Operator, request: Request) -> Operator:
        """Frequency matrices where they are cheaper."""
        size = request.size
        return operator if size is None or not self.acts_on_frequencies(size) else operator.by_frequency(size)

    def apply_to(self, x: Tensor, operator: Operator) -> Tensor:
        """The input transformation on (batch, in_channels, height, width)."""
        return self.convolution_geometry.apply(x, operator, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, h, w), or one image (in_channels, h, w), as `nn.Conv2d` does."""
        if (last := repeated_pass(self, x)) is not None:
            if last.kernel is not None:
                return convolved(x, last.kernel, self.bias)
            return in_format_of(x, self.apply_to(x, last.operator))
        check_numbers(self, x)
        axes = len(self.axes)
        if x.dim() not in (axes + 1, axes + 2) or x.shape[-axes - 1] != self.in_channels:
            raise InvalidInputError(
                f"{type(self).__name__} expects (batch, {self.in_channels}, {', '.join(self.axes)}), "
                f"got {tuple(x.shape)}"
            )
        check_type(self, x, self.weight)
        if x.dim() == axes + 1:
            return self.forward(x[None])[0]
        operator = self.operator(self.convolution_geometry.image(x.shape))
        if not self.training:
            remember_pass(self, x, operator, kernel_alone=self._is_kernel_alone(operator))
        return in_format_of(x, self.apply_to(x, operator))

    def _is_kernel_alone(self, operator: Operator) -> bool:
        """Whether `apply_to` is nothing but the operator, and that is one convolution."""
        if type(operator) is not Kernel or type(self).apply_to is not LipschitzConv2d.apply_to:
            return False
        alone = self.geometry.moves_nothing and len(self.axes) == 2 and self.groups == 1
        return alone and operator.kernel.shape[:2] == (self.out_channels, self.in_channels)

    def lipschitz_bound(self, input_size: Size | None = None) -> float:
        """Proven upper bound of the Lipschitz constant in evaluation mode on images of this size, rounding included."""
        sides = self._checked_size(input_size, "the bound of {} depends on the {}: pass input_size={}")
        return proven_bound(self, (self.in_channels, *sides[-len(self.axes) :])).lipschitz

    def _checked_size(self, input_size: Any, message: str) -> Any:
        """The sides as integers; those of a signal are (1, length)."""
        names = self.axes if len(self.axes) == 3 else ("height", "width")
        if input_size is None or len(input_size) != len(names):
            kind = "volume" if len(names) == 3 else "image"
            raise InvalidInputError(message.format(type(self).__name__, kind, f"({', '.join(names)})"))
        return tuple(map(int, input_size))

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """The bound of the core in its frame."""
        around = self.convolution_geometry
        return around.bound(input_shape, self.deployed(around.image(input_shape)), self.bias)

    def fuse(self, input_size: Size | None = None) -> nn.Module:
        """Plain modules with the same outputs and no parameter transformation.

        `input_size` is the height and width of this layer's input; it is needed where the transformed
        parameters depend on it, unless the layer has been evaluated on exactly one size since it last changed.
        """
        if self.keeps_taps and self._is_torchs_own(input_size):
            return self._as_torchs_own(input_size)
        operator, geometry = self._detached(input_size), self.geometry
        step = self.stride[0]
        simple = geometry == Geometry(self.kernel_size, (step, step), None, (1, 1), geometry.circular)
        if self.groups > 1 or len(self.axes) == 1 or not simple or not geometry.is_aligned:
            return FusedLayer(Framed(self.convolution_geometry, operator), self.bias)
        core = self.fuse_core(operator, None if input_size is None else geometry.core_image(input_size))
        before, after = [], []
        if step > 1:
            before += [ZeroSpatialPad(step), nn.PixelUnshuffle(step)]
        if self.core_in > self.in_channels * step * step:
            before.append(ZeroChannelPad(self.core_in))
        if self.core_out > self.out_channels:
            after.append(FirstChannels(self.out_channels))
        return nn.Sequential(*before, core, *after) if before or after else core

    def _is_torchs_own(self, input_size: Size | None) -> bool:
        """Whether `nn.Conv2d` is the same, and is proven to be.

        It is not on a circle smaller than its padding. A strided kernel that was normalised on the torus of its
        zero-padded blocks is proven on another torus as one of torch.
        """
        geometry, stride = self.geometry, self.stride
        if len(self.axes) == 1 or geometry.transposed or geometry.padding is not None:
            return False
        if stride != (1, 1) and (
            stride[0] != stride[1] or self.dilation != (1, 1) or (self.size_dependent and not geometry.circular)
        ):
            return False
        if input_size is None or self.padding_mode == "zeros":
            return True
        reach = ((k - 1) // 2 * d for k, d in zip(self.kernel_size, self.dilation, strict=True))
        return all(pad <= length for pad, length in zip(reach, input_size, strict=True))

    def _as_torchs_own(self, input_size: Size | None) -> nn.Module:
        """One `nn.Conv2d`, stride and groups included."""
        kernel, step = self._detached(input_size, cheapest_form=False).tensors()["kernel"], self.stride[0]
        if step > 1:
            high, wide = self.geometry.core_sides
            kernel = taps_of_blocks(kernel[..., -high:, -wide:], self.kernel_size, self.stride, (1, 1))
        kernel = kernel.flatten(0, 1) if self.groups > 1 else kernel
        options = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        conv = frozen_conv(kernel, self.bias, self.padding_mode, **options)
        divides = input_size is not None and all(side % step == 0 for side in input_size)
        return conv if divides or step == 1 else nn.Sequential(ZeroSpatialPad(step), conv)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding}"
        text += "" if self.dilation == (1, 1) else f", dilation={self.dilation}"
        text += "" if self.groups == 1 else f", groups={self.groups}"
        text += f", bias={self.bias is not None}, padding_mode={self.padding_mode}"
        return text if self.lipschitz == 1 else f"{text}, lipschitz={self.lipschitz}"
