"""One parameter transformation for all layers of a network that are alike.

Five convolutions of the same shape are five times the same sequence of small operations. `transform_tensors` takes a
leading dimension, so the parameters of such layers are stacked, transformed in one go and handed back: fewer and
larger operations, the same result up to the order of sums. A network does this for its layers in training:

    with stacked_transforms([(layer, (32, 32)) for layer in layers]):
        y = network(x)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from onelip.layers.base import LipschitzLayer, transform_layers
from onelip.linalg.fourier import Size


@contextmanager
def stacked_transforms(layers: Iterable[tuple[LipschitzLayer, Size | None]]) -> Iterator[None]:
    """Transform these layers, given with the sizes of their inputs, for one forward pass inside the block.

    Layers in evaluation mode are left alone: they have their own cache.
    """
    together: dict[Any, list[LipschitzLayer]] = defaultdict(list)
    for layer, size in layers:
        if layer.training:
            together[layer.core_size(size), _likeness(layer)].append(layer)
    groups = [(size, group) for (size, _), group in together.items() if len(group) > 1]
    try:
        for size, group in groups:
            for layer, transformed in zip(group, transform_layers(group, size), strict=True):
                layer.hand_over(size, transformed)
        yield
    finally:
        for _, group in groups:
            for layer in group:
                layer.take_back()


_OPTION_TYPES = (bool, int, float, str, tuple)


def _likeness(layer: LipschitzLayer) -> Any:
    """Equal for layers whose parameters are transformed by the same function: class, options, shapes, device."""
    options = {name: value for name, value in vars(layer).items() if isinstance(value, _OPTION_TYPES)}
    tensors = layer.tensors_to_transform()
    kinds = [(name, tuple(tensors[name].shape), tensors[name].dtype, tensors[name].device) for name in sorted(tensors)]
    return type(layer), tuple(sorted(options.items())), tuple(kinds)
