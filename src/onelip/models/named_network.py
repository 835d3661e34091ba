"""What all networks share: they are rebuilt from plain arguments, and train stacked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.base import LipschitzLayer
from onelip.layers.combine import UnitRowsLinear
from onelip.layers.reshape import FirstChannels
from onelip.layers.spatial import MatrixLinear
from onelip.layers.stacking import stacked_transforms
from onelip.linalg.fourier import Size
from onelip.models.batch_parts import has_hooks


class NamedNetwork(nn.Sequential):
    """Modules in a row that know the arguments they were built from, all of them plain values.

    Layers that are alike are transformed together in training, for which `sizes` has the height and width of each
    layer's input by the layer's name. A subclass passes its arguments on, so that `type(net)(**net.arguments)` is a new
    network of the same kind: that is how networks are saved and loaded.
    """

    widths: ClassVar[Mapping[str, int]]
    """Width by size, XS to L."""

    usual_size: ClassVar[str] = "XS"
    """The size that is trained where none is given."""

    method: ClassVar[str]
    """The method it is made for."""

    def __init__(
        self,
        modules: OrderedDict[str, nn.Module],
        sizes: Mapping[str, Size | None],
        arguments: Mapping[str, Any],
        input_shape: tuple[int, int, int],
    ) -> None:
        super().__init__(modules)
        self.sizes, self.arguments, self.input_shape = dict(sizes), dict(arguments), input_shape

    def forward(self, input: Tensor) -> Tensor:
        """Scores of images (batch, *input_shape)."""
        check_images(self, self.input_shape, input)
        if not self.training or torch.compiler.is_compiling():
            return super().forward(input)
        layers = [(self.get_submodule(name), size) for name, size in self.sizes.items()]
        stacked = stacked_transforms((layer, size) for layer, size in layers if isinstance(layer, LipschitzLayer))
        with stacked, self._used_scores_alone():
            return super().forward(input)

    @contextmanager
    def _used_scores_alone(self) -> Iterator[None]:
        """Transform a last layer for the outputs that are scores, unless a hook looks at all of them."""
        *_, head, scores = (None, *self.children())
        if not (isinstance(head, MatrixLinear) and isinstance(scores, FirstChannels)) or has_hooks(head, scores):
            yield
            return
        head.hand_over(None, partial(head.first_outputs, scores.channels), scores.channels)
        try:
            yield
        finally:
            head.take_back()

    def pair_constants(self) -> Tensor | None:
        """Constants of the differences of two scores (classes, classes), in training: not proven. None means 2^(1/2).

        That is ||w_i - w_j|| for the unit rows of a last layer behind 1-Lipschitz ones.
        """
        last = self[-1]
        if not isinstance(last, UnitRowsLinear):
            return None
        rows = nn.functional.normalize(last.weight.detach(), dim=1)
        return torch.cdist(rows, rows)

    def __getitem__(self, index: Any) -> Any:
        # A slice is no longer the network of `arguments`, so it is a plain sequence of modules.
        chosen = list(self.named_children())[index] if isinstance(index, slice) else None
        return super().__getitem__(index) if chosen is None else nn.Sequential(OrderedDict(chosen))


def check_images(network: nn.Module, input_shape: tuple[int, int, int], images: Tensor) -> None:
    """Refuse what is no batch of images of this shape."""
    if tuple(images.shape[1:]) != input_shape:
        raise InvalidInputError(
            f"{type(network).__name__} expects (batch, {', '.join(map(str, input_shape))}), got {tuple(images.shape)}"
        )


def checked_image_shape(name: str, input_shape: Any, multiple: int) -> tuple[int, int, int]:
    """Channels, height and width as integers; sides must be multiples of `multiple`."""
    shape = tuple(input_shape)
    if len(shape) != 3 or any(type(number) is not int or number < 1 for number in shape):
        raise InvalidInputError(f"{name}: input_shape={input_shape!r} must be channels, height and width")
    if shape[1] % multiple or shape[2] % multiple:
        raise InvalidInputError(
            f"{name}: images of {shape[1]} x {shape[2]} are not supported, their sides must be multiples of {multiple}"
        )
    return shape


def check_counts(name: str, **numbers: Any) -> None:
    """Positive integers."""
    for key, value in numbers.items():
        if type(value) is not int or not 1 <= value <= 2**20:
            raise InvalidInputError(f"{name}: {key}={value!r} must be a positive integer")
