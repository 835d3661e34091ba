"""The base of all networks: they are rebuilt from plain arguments, and train stacked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from onelip.errors import InvalidInputError
from onelip.layers.blocks.combine import UnitRowsLinear
from onelip.layers.blocks.reshape import FirstChannels
from onelip.layers.contract import Request
from onelip.layers.kernel_layers import MatrixLinear
from onelip.layers.layer import LipschitzLayer
from onelip.layers.memory_format import any_memory_format
from onelip.layers.operator_sources import HOOKS, serving
from onelip.layers.operators import Operator
from onelip.linalg.fourier import Size
from onelip.models.batch_parts import apply_modules, has_hooks, pays_to_look_inside
from onelip.protocol import NetworkInfo


class NamedNetwork(nn.Sequential):
    """Modules in a row that know the arguments they were built from, all of them plain values.

    Layers that are alike are transformed together in training, for which `sizes` has the height and width of each
    layer's input by the layer's name. A subclass passes its arguments on, so that `type(net)(**net.arguments)` is a new
    network of the same kind: that is how networks are saved and loaded.
    """

    info: ClassVar[NetworkInfo]
    """Its sizes and the method that it is made for."""

    absent_arguments: ClassVar[Mapping[str, Any]] = {}
    """Values of arguments in files that do not have them, because they are older than the argument."""

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
        if torch.compiler.is_compiling():
            return super().forward(input)
        with any_memory_format():
            if self.training:
                return self._stacked(input)
            if pays_to_look_inside(self, input):
                return apply_modules(self, input)
            return super().forward(input)

    def _stacked(self, input: Tensor) -> Tensor:
        layers = [(self.get_submodule(name), size) for name, size in self.sizes.items()]
        training = [(layer, size) for layer, size in layers if isinstance(layer, LipschitzLayer) and layer.training]
        together = HOOKS.together([(layer, layer.core_size(size)) for layer, size in training])
        with together, self._used_scores_alone():
            return super().forward(input)

    @contextmanager
    def _used_scores_alone(self) -> Iterator[None]:
        """Transform a last layer for the outputs that are scores, unless a hook looks at all of them."""
        *_, head, scores = (None, *self.children())
        if not (isinstance(head, MatrixLinear) and isinstance(scores, FirstChannels)) or has_hooks(head, scores):
            yield
            return

        def first_rows(layer: LipschitzLayer, request: Request, make: Callable[[Request], Operator]) -> Operator:
            return make(replace(request, rows=scores.channels))

        with serving([head], first_rows, outermost=True):
            yield

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
