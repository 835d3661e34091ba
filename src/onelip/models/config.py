"""Configuration of the comparison paper's network: plain values, checked, and the sizes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

from onelip.errors import InvalidInputError
from onelip.layers import get_method
from onelip.layers.registry import PublishedSetting, published_settings
from onelip.protocol import WIDTHS

ACTIVATIONS = {"maxmin": 2, "groupsort4": 4, "householder": 2, "abs": 1}
"""Activations by name, with the number of channels that each looks at together."""

_SMALLEST_IMAGE, _LARGEST_IMAGE = 8, 4096


@dataclass(frozen=True, kw_only=True)
class ConvNetConfig:
    """All that is needed to build a `ConvNet`; plain values only, so that it can be stored as JSON.

    `size` is one of XS, S, M, L, or None for a `width` of one's own. Images are `input_size` high and `input_width`
    wide (None: square), and the network extends them by zeros to squares of `padded_size`, a power of two. `setting` is
    "own", or "published" for what the comparison paper's code does with the method; "auto" as `padding_mode` and `init`
    is what belongs to the setting.
    """

    method: str
    size: str | None
    num_classes: int
    input_size: int = 32
    kernel_size: int = 3
    in_channels: int = 3
    width: int | None = None
    activation: str = "maxmin"
    padding_mode: str = "auto"
    init: str = "auto"
    setting: str = "own"
    input_width: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", get_method(self.method).key)
        self._check_types()
        self._check_size()
        self._choose_setting()
        self._check_names()
        unit = 2 * self.group_size
        if self.channels < unit or self.channels % unit or self.channels < self.in_channels:
            raise InvalidInputError(
                f"a width of {self.channels} is not supported with {self.activation}, use a multiple of {unit}, "
                f"not below in_channels={self.in_channels}"
            )
        if self.num_classes > self.features:
            raise InvalidInputError(
                f"num_classes={self.num_classes} is not supported, this network has 1 to {self.features} outputs"
            )

    def _choose_setting(self) -> None:
        if self.setting not in ("own", "published"):
            raise InvalidInputError(f"setting={self.setting!r} is not known, use one of own, published")
        if self.setting == "published" and self.published is None:
            raise InvalidInputError(f"{self.method} has no published setting, use setting='own'")
        if self.padding_mode == "auto":
            is_zeros = self.published is not None and self.published.padding_mode == "zeros"
            object.__setattr__(self, "padding_mode", "zeros" if is_zeros else "circular")
        if self.init == "auto" and self.setting == "published":
            object.__setattr__(self, "init", "published")

    def _check_names(self) -> None:
        method = get_method(self.method)
        variant = None if self.published is None else self.published.conv
        known = {
            "activation": tuple(ACTIVATIONS),
            "padding_mode": ("auto", "circular", "zeros"),
            "init": (variant or method.conv).traits.initialisations,
        }
        for name, allowed in known.items():
            if getattr(self, name) not in allowed:
                raise InvalidInputError(f"{name}={getattr(self, name)!r} is not known, use one of {', '.join(allowed)}")

    def _check_types(self) -> None:
        for name in ("num_classes", "input_size", "kernel_size", "in_channels"):
            number = getattr(self, name)
            if type(number) is not int or number < 1:
                raise InvalidInputError(f"{name}={number!r} must be a positive integer")
        if self.width is not None and type(self.width) is not int:
            raise InvalidInputError(f"width={self.width!r} must be an integer or None")
        if self.input_width is not None and (type(self.input_width) is not int or self.input_width < 1):
            raise InvalidInputError(f"input_width={self.input_width!r} must be a positive integer or None")
        if self.input_width == self.input_size:
            object.__setattr__(self, "input_width", None)
        if self.padded_size > _LARGEST_IMAGE:
            raise InvalidInputError(f"images of {self.padded_size} pixels a side are beyond {_LARGEST_IMAGE}")

    def _check_size(self) -> None:
        if (self.size is None) == (self.width is None):
            raise InvalidInputError("pass either a size or a width: size=None with width=..., or a size alone")
        if self.size is not None:
            if str(self.size).upper() not in WIDTHS:
                raise InvalidInputError(f"size={self.size!r} is not known, use one of {', '.join(WIDTHS)}")
            object.__setattr__(self, "size", self.size.upper())

    @property
    def published(self) -> PublishedSetting | None:
        """The choices of the comparison paper's code for the method, in its setting."""
        return published_settings().get(self.method) if self.setting == "published" else None

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self.in_channels, self.input_size, self.input_width or self.input_size

    @property
    def padded_size(self) -> int:
        """Side of the squares that the blocks work on: the next power of two that holds an image, at least 8."""
        return max(_SMALLEST_IMAGE, 1 << (max(self.input_shape[1:]) - 1).bit_length())

    @property
    def image_padding(self) -> tuple[int, int, int, int]:
        """Zeros left, right, above and below an image."""
        _, height, width = self.input_shape
        rows, columns = self.padded_size - height, self.padded_size - width
        return columns // 2, columns - columns // 2, rows // 2, rows - rows // 2

    @property
    def channels(self) -> int:
        """Channels after the first layer, the paper's w; never less than the activation and the images need."""
        if self.width is not None:
            return self.width
        assert self.size is not None
        unit = 2 * self.group_size
        least = -(-self.in_channels // unit) * unit
        return max(WIDTHS[self.size] // max(1, self.padded_size // 32), least)

    @property
    def group_size(self) -> int:
        """Channels that the activation sorts or reflects together."""
        return ACTIVATIONS[self.activation]

    @property
    def num_blocks(self) -> int:
        """Each block halves the side of the image, the last one to 1."""
        return self.padded_size.bit_length() - 1

    @property
    def features(self) -> int:
        """Inputs and outputs of the last layer."""
        return self.channels << self.num_blocks
